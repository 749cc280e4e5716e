// Runs a fuzzer's entry over files, for compilers without libFuzzer. Arguments are files, or
// directories of which every file is taken, in order; options of libFuzzer are passed over.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz.h"

namespace {

constexpr unsigned kSecondsPerInput = 10;

void replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // The name comes first, so that it is known after a crash.
  std::fprintf(stderr, "%s\n", path.c_str());
  ::alarm(kSecondsPerInput);
  // A copy of its very size on the heap, so that sanitizers see a read past its end.
  const std::vector<uint8_t> bytes(content.begin(), content.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  ::alarm(0);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] == '-') continue;
    if (!std::filesystem::is_directory(argv[i])) {
      paths.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) paths.push_back(entry);
  }
  if (paths.empty()) {
    std::fprintf(stderr, "usage: %s FILE_OR_DIRECTORY...\n", argv[0]);
    return 2;
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) replay(path);
  std::fprintf(stderr, "%zu inputs\n", paths.size());
  return 0;
}
