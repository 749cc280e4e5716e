#include "core/pipeline/timeline_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace nxd {
namespace {

using Event = Timeline::Event;

constexpr double kWidth = 1400, kLeft = 90, kRight = 20, kTop = 16;
constexpr double kRow = 34, kBox = 26, kAxis = 40, kLegend = 34;
constexpr double kDigit = 7;  // width of one, of the font's

struct Colour {
  const char* name;
  int hue, saturation, lightness;
};
constexpr std::array<Colour, 4> kColours{{{"forward", 212, 62, 66},
                                          {"backward", 135, 42, 60},
                                          {"input gradient", 172, 45, 58},
                                          {"weight gradient", 36, 80, 62}}};

template <class... Values>
std::string form(const char* format, Values... values) {
  char out[512];
  std::snprintf(out, sizeof out, format, values...);
  return out;
}

// Chunks beyond the fourth are hardly told apart by eye.
std::string fill_of(const Event& event) {
  for (const Colour& colour : kColours) {
    if (event.name != colour.name) continue;
    return form("hsl(%d,%d%%,%d%%)", colour.hue, colour.saturation,
                colour.lightness - 9 * std::min(event.chunk, 3));
  }
  return "url(#wait)";
}

// 1, 2 or 5 times a power of ten, so that there are some ten steps.
double nice_step(double range) {
  const double rough = std::max(range, 1e-6) / 10;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class Drawing {
 public:
  explicit Drawing(const std::vector<RankTimeline>& ranks) : ranks_(ranks) {
    for (const RankTimeline& rank : ranks) {
      for (const Event& event : rank.events) {
        begin_ = std::min(begin_, event.begin_ns);
        end_ = std::max(end_, event.end_ns);
      }
    }
    if (end_ < begin_) begin_ = end_ = 0;  // nothing was recorded
    if (end_ == begin_) ++end_;
  }

  std::string draw() {
    const double height = bottom() + kAxis + kLegend;
    out_ = form(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
        "viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"12\">\n",
        kWidth, height, kWidth, height);
    out_ +=
        "<defs><pattern id=\"wait\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/>"
        "<rect width=\"1.5\" height=\"6\" fill=\"#c8c8c8\"/></pattern></defs>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    for (size_t row = 0; row < ranks_.size(); ++row) draw_row(row);
    draw_axis();
    draw_legend();
    return out_ + "</svg>\n";
  }

 private:
  double bottom() const { return kTop + kRow * static_cast<double>(ranks_.size()); }
  double ms() const { return static_cast<double>(end_ - begin_) * 1e-6; }
  double x_of_ms(double at) const { return kLeft + at / ms() * (kWidth - kLeft - kRight); }
  double x_of(int64_t ns) const { return x_of_ms(static_cast<double>(ns - begin_) * 1e-6); }

  void draw_row(size_t row) {
    const RankTimeline& rank = ranks_[row];
    const double y = kTop + kRow * static_cast<double>(row);
    out_ += form("<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">rank %d</text>\n", kLeft - 8,
                 y + kBox / 2 + 4, rank.rank);
    for (const Event& event : rank.events) {
      if (event.category != "communication") draw_event(event, y);
    }
  }

  void draw_event(const Event& event, double y) {
    const double x = x_of(event.begin_ns);
    const double width = std::max(x_of(event.end_ns) - x, 0.2);
    const bool waits = event.category == "wait";
    out_ += form("<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%g\" fill=\"%s\"%s>", x, y,
                 width, kBox, fill_of(event).c_str(),
                 waits ? ""
                       : " stroke=\"#ffffff\" "
                         "stroke-width=\"0.5\"");
    out_ += form("<title>%s mb %d chunk %d: %.3f ms</title></rect>\n", event.name.c_str(),
                 event.microbatch, event.chunk,
                 static_cast<double>(event.end_ns - event.begin_ns) * 1e-6);
    const std::string number = std::to_string(event.microbatch);
    if (waits || width < kDigit * static_cast<double>(number.size()) + 2) return;
    out_ += form("<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x + width / 2,
                 y + kBox / 2 + 4, number.c_str());
  }

  void draw_axis() {
    const double y = bottom() + 6, step = nice_step(ms());
    out_ += form("<path d=\"M%g %.1fH%g\" stroke=\"#444444\"/>\n", kLeft, y, kWidth - kRight);
    for (int tick = 0; tick * step <= ms(); ++tick) {
      const double x = x_of_ms(tick * step);
      out_ += form(
          "<path d=\"M%.2f %.1fv5\" stroke=\"#444444\"/>"
          "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
          x, y, x, y + 18, tick * step);
    }
    out_ += form("<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">ms</text>\n", kLeft - 8, y + 18);
  }

  void draw_legend() {
    double x = kLeft;
    const double y = bottom() + kAxis;
    const auto entry = [&](const std::string& fill, const char* name) {
      out_ += form(
          "<rect x=\"%g\" y=\"%.1f\" width=\"18\" height=\"14\" fill=\"%s\"/>"
          "<text x=\"%g\" y=\"%.1f\">%s</text>\n",
          x, y, fill.c_str(), x + 24, y + 11, name);
      x += 150;
    };
    for (const Colour& colour : kColours) {
      if (appears(colour.name)) {
        entry(form("hsl(%d,%d%%,%d%%)", colour.hue, colour.saturation, colour.lightness),
              colour.name);
      }
    }
    entry("url(#wait)", "wait");
  }

  bool appears(const std::string& name) const {
    for (const RankTimeline& rank : ranks_) {
      for (const Event& event : rank.events) {
        if (event.name == name) return true;
      }
    }
    return false;
  }

  const std::vector<RankTimeline>& ranks_;
  int64_t begin_ = std::numeric_limits<int64_t>::max();
  int64_t end_ = std::numeric_limits<int64_t>::min();
  std::string out_;
};

}  // namespace

std::string timeline_picture(const std::vector<RankTimeline>& ranks) {
  return Drawing(ranks).draw();
}

}  // namespace nxd
