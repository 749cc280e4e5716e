// nxdconvert: copies a model's weights between files, shards and dtypes, a few MiB at a time.
#include <getopt.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/checkpoint/convert_weights.h"
#include "standard_output.h"

namespace {

constexpr char kUsage[] =
    "usage: nxdconvert [OPTION...] FROM TO\n"
    "\n"
    "Copies the weights of FROM, which is a .safetensors file, a Hugging Face directory, or that\n"
    "of a step's checkpoint. TO is another .safetensors file, or a directory that is not there "
    "yet;\n"
    "it gets config.json and the tokenizer's files too. Nothing has TO's name until it is "
    "complete.\n"
    "\n"
    "  --dtype D           f32, f64, bf16 or f16 for all floats; by default as they are stored.\n"
    "                      Values beyond the range of D are an error\n"
    "  --max-shard-size S  bytes of one file, such as 5GB or 500MiB; by default one file has all\n"
    "  --config FILE       config.json in place of FROM's; needed where FROM has none\n"
    "  --quiet             no progress; there is none either where it is no terminal's\n"
    "  -h, --help          this text\n";

struct Settings {
  nxd::WeightConversion conversion;
  bool quiet = false;
  const char* from = nullptr;
  const char* to = nullptr;
};

bool read_dtype(const char* text, nxd::WeightConversion& out) {
  const std::pair<const char*, nxd_dtype_t> known[] = {{"f32", NXD_DTYPE_F32},
                                                       {"f64", NXD_DTYPE_F64},
                                                       {"bf16", NXD_DTYPE_BF16},
                                                       {"f16", NXD_DTYPE_F16}};
  out.dtype.reset();
  for (const auto& [name, dtype] : known) {
    if (std::strcmp(name, text) == 0) out.dtype = dtype;
  }
  return out.dtype.has_value();
}

// A whole number of bytes, or of one of the units.
bool read_size(const char* text, uint64_t& out) {
  const std::pair<const char*, uint64_t> units[] = {{"", 1},
                                                    {"KB", 1000},
                                                    {"MB", 1000 * 1000},
                                                    {"GB", 1000 * 1000 * 1000},
                                                    {"KiB", uint64_t{1} << 10U},
                                                    {"MiB", uint64_t{1} << 20U},
                                                    {"GiB", uint64_t{1} << 30U}};
  char* end = nullptr;
  if (*text < '0' || *text > '9') return false;
  const uint64_t number = std::strtoull(text, &end, 10);
  for (const auto& [name, unit] : units) {
    if (std::strcmp(name, end) != 0 || number == 0 || number > (uint64_t{1} << 60U) / unit)
      continue;
    out = number * unit;
    return true;
  }
  return false;
}

bool set_option(int option, Settings& settings) {
  switch (option) {
    case 'd':
      if (read_dtype(optarg, settings.conversion)) return true;
      std::fprintf(stderr, "nxdconvert: --dtype: expected f32, f64, bf16 or f16, got %s\n", optarg);
      return false;
    case 's':
      if (read_size(optarg, settings.conversion.max_shard_bytes)) return true;
      std::fprintf(stderr, "nxdconvert: --max-shard-size: expected a size such as 5GB, got %s\n",
                   optarg);
      return false;
    case 'c': settings.conversion.config = optarg; return true;
    case 'q': settings.quiet = true; return true;
    default: return false;
  }
}

// 0, 1 after --help, -1 when the arguments are wrong.
int parse(int argc, char** argv, Settings& settings) {
  const option known[] = {{"help", no_argument, nullptr, 'h'},
                          {"dtype", required_argument, nullptr, 'd'},
                          {"max-shard-size", required_argument, nullptr, 's'},
                          {"config", required_argument, nullptr, 'c'},
                          {"quiet", no_argument, nullptr, 'q'},
                          {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "h", known, nullptr)) != -1;) {
    if (c == 'h') return 1;
    if (!set_option(c, settings)) return -1;
  }
  if (argc - optind != 2) {
    std::fprintf(stderr, "nxdconvert: expected FROM and TO, got %d arguments\n", argc - optind);
    return -1;
  }
  settings.from = argv[optind];
  settings.to = argv[optind + 1];
  return 0;
}

// A line that is written over, a few times a second.
class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  ~ProgressLine() {
    if (shown_) std::fputc('\n', stderr);
  }

  void show(uint64_t done, uint64_t total) {
    const Clock::time_point now = Clock::now();
    if (shown_ && done < total && now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    shown_ = true;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
    constexpr int kWidth = 30;
    const int full = static_cast<int>(share * kWidth);
    std::fprintf(stderr, "\r[%.*s%*s] %3.0f %%  %.2f of %.2f GB  %.0f MB/s  ", full,
                 "##############################", kWidth - full, "", 100 * share,
                 static_cast<double>(done) / 1e9, static_cast<double>(total) / 1e9,
                 seconds > 0 ? static_cast<double>(done) / 1e6 / seconds : 0.0);
    std::fflush(stderr);
  }

 private:
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_;
  bool shown_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  const int parsed = parse(argc, argv, settings);
  if (parsed != 0) {
    std::fputs(kUsage, parsed > 0 ? stdout : stderr);
    return parsed > 0 ? end_output("nxdconvert", 0) : 2;
  }
  try {
    ProgressLine line;
    nxd::ConversionProgress progress;
    if (!settings.quiet && ::isatty(STDERR_FILENO) == 1) {
      progress = [&](uint64_t done, uint64_t total) { line.show(done, total); };
    }
    nxd::convert_weights(settings.from, settings.to, settings.conversion, progress);
    return 0;
  } catch (const std::exception&) {
    std::fprintf(stderr, "nxdconvert: %s\n", nxd::Error::current().what());
    return 1;
  }
}
