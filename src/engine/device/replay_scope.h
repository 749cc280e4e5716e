#pragma once

namespace nxd {

class Recording;

// In its scope this thread runs a graph of a recording, and holds its execution. The interrupt
// callback, which is asked meanwhile, may make calls for the same recording.
class ReplayScope {
 public:
  explicit ReplayScope(const Recording& recording);
  ~ReplayScope();
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;

  // This thread's, or null.
  static const ReplayScope* innermost();
  static bool has(const Recording& recording);

  // In its scope a thread of a plug-in's makes a call of the graph that another thread runs.
  class Call {
   public:
    explicit Call(const ReplayScope* of);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    const ReplayScope* const outer_;
  };

 private:
  const Recording& recording_;
  const ReplayScope* const outer_;
};

}  // namespace nxd
