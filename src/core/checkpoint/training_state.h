#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/agree/outcome.h"
#include "core/checkpoint/checkpoint.h"
#include "core/world/context.h"

namespace nxd {

// The parts that a training run goes on from, in and out of checkpoints together; see
// nxd_training_state_save. It knows a part by what takes its snapshot and what loads it, and the
// ranks' parts by their names, which are compared before anything is done.
class TrainingState {
 public:
  explicit TrainingState(std::shared_ptr<Context> context);

  // A file of the name with .safetensors behind it. Parameters are loaded before the states of
  // optimizers: a loaded state has the wide copies of narrow parameters, which a later load of the
  // parameters would replace.
  enum class FileKind { kParameters, kOptimizerState };
  using Load = std::function<void(const std::string& path)>;
  void add_file(FileKind kind, const std::string& name, Checkpoint::Take take, Load load);
  // A number, kept as a value of the checkpoint. check_settable throws where set would.
  void add_position(const std::string& name, std::function<int64_t()> get,
                    std::function<void(int64_t)> set, std::function<void(int64_t)> check_settable);
  void set_value(const std::string& key, const std::string& value);
  const std::map<std::string, std::string>& values() const { return values_; }

  // Collective, all of them. given: all ranks fail with one whose arguments are none.
  void save(const std::string& root, int64_t step, int keep_last, bool background,
            const Outcome& given = {});
  std::optional<int64_t> load_newest(const std::string& root, bool verify,
                                     const Outcome& given = {});
  void snapshot(Checkpoint& checkpoint);
  void restore(Checkpoint& checkpoint);

  // Waits for what is saved in the background, and fails as it did; that attempt is given up then.
  void wait(int64_t timeout_ms);

  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  struct File {
    FileKind kind;
    std::string name;
    Checkpoint::Take take;
    Load load;
  };
  struct Position {
    std::string name;
    std::function<int64_t()> get;
    std::function<void(int64_t)> set;
    std::function<void(int64_t)> check_settable;
  };
  // A checkpoint's parts, found before the first one is loaded.
  struct Found {
    std::vector<std::string> paths;  // as files_
    std::vector<int64_t> positions;  // as positions_
  };

  void check_new_part(const std::string& name) const;
  std::string part_list() const;
  void on_all(const std::function<void()>& attempt) const;
  void check_parts(const Checkpoint& checkpoint, const std::function<void()>& attempt) const;
  Found find_in(const Checkpoint& checkpoint) const;

  std::shared_ptr<Context> context_;
  std::vector<File> files_;
  std::vector<Position> positions_;
  std::map<std::string, std::string> values_;
  std::unique_ptr<Checkpoint> saving_;  // in the background, until it was heard how that ended
};

}  // namespace nxd
