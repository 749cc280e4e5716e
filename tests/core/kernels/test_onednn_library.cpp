// oneDNN comes with the first product, and its lack is an error of that product.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/error.h"
#include "core/kernel_support.h"
#include "core/kernels/gemm.h"

using namespace nxd;
using namespace nxd::kernels;
using test::Buffer;

namespace {

bool is_loaded() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libdnnl") != std::string::npos) return true;
  }
  return false;
}

double product() {
  Buffer a(NXD_DTYPE_F32, 1), b(NXD_DTYPE_F32, 1), c(NXD_DTYPE_F32, 1);
  a.set(0, 3);
  b.set(0, 5);
  GemmArgs args;
  args.m = args.n = args.k = args.lda = args.ldb = args.ldc = 1;
  args.a = a.data();
  args.b = b.data();
  args.c = c.data();
  args.in_dtype = args.out_dtype = NXD_DTYPE_F32;
  gemm(args);
  return c[0];
}

void test_first_product_loads(void**) {
  assert_false(is_loaded());
  assert_true(product() == 15);
  assert_true(is_loaded());
}

// Run where the loader finds a file that is no library: each product says so, and nothing ends.
int run_without() {
  for (int turn = 0; turn < 2; ++turn) {
    try {
      product();
      return 1;
    } catch (const Error& error) {
      const std::string text = error.what();
      if (error.status() != NXD_ERROR_IO) return 2;
      if (text.find("oneDNN cannot be loaded: ") == std::string::npos) return 3;
      if (text.find("libdnnl") == std::string::npos) return 4;
    }
  }
  return 0;
}

void test_lack(void**) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("nxd_onednn_" + std::to_string(getpid()));
  fs::create_directory(folder);
  std::ofstream(folder / NXD_DNNL_SONAME) << "no library";
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const char* paths = std::getenv("LD_LIBRARY_PATH");
    const std::string all = folder.string() + (paths ? ":" + std::string(paths) : "");
    setenv("LD_LIBRARY_PATH", all.c_str(), 1);
    execl("/proc/self/exe", "test_onednn_library", "without", nullptr);
    _exit(127);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  fs::remove_all(folder);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) return run_without();
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_lack),
      cmocka_unit_test(test_first_product_loads),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
