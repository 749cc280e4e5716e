// OMP_NUM_THREADS changes no bit of a training: losses, norms, gradients and parameters of small
// models, whose pairs of a sequence and a key head no number of threads divides. Each number has a
// process of its own, since libtorch reads it once: the test, with a case and a file to write.
#include <cstdlib>
#include <fstream>

#include "support/model_support.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int kSteps = 3;

// Long enough for kernels to divide their work.
struct Case {
  const char* name;
  const char* oracle;
  int64_t batch, sequence;
  bool padded;
  nlohmann::json changes;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"one pair", "llama_tiny", 1, 400, false, {{"num_key_value_heads", 1}, {"head_dim", 48}}},
      {"two pairs with windows",
       "llama_tiny",
       1,
       500,
       false,
       {{"model_type", "mistral"}, {"sliding_window", 130}, {"head_dim", 48}}},
      {"five padded pairs", "llama_tiny", 5, 300, true, {{"num_key_value_heads", 1}}},
      {"five pairs with dropout",
       "gpt2_tiny",
       1,
       400,
       false,
       {{"n_embd", 160}, {"n_head", 5}, {"attn_pdrop", 0.1}, {"n_positions", 400}}},
  };
  return all;
}

ModelOracle oracle_of(const Case& c) {
  ModelOracle out(c.oracle);
  nlohmann::json config = nlohmann::json::parse(out.config);
  if (config["model_type"] == "llama") config["max_position_embeddings"] = 1024;
  config.update(c.changes);
  out.config = config.dump();
  out.shape = {c.batch, c.sequence};
  out.ids.clear();
  for (int64_t i = 0; i < c.batch * c.sequence; ++i) {
    out.ids.push_back((i * i * 31 + i * 7) % out.vocabulary);
  }
  out.labels = out.ids;
  out.expected["batch"] = nlohmann::json::object();
  for (int64_t row = 0; c.padded && row < c.batch; ++row) {
    std::vector<int64_t> keep(static_cast<size_t>(c.sequence), 1);
    std::fill(keep.end() - 50 * row, keep.end(), 0);
    out.expected["batch"]["attention_mask"].push_back(keep);
  }
  return out;
}

void append(const Named& values, std::vector<double>& to) {
  for (const auto& [name, v] : values) to.insert(to.end(), v.begin(), v.end());
}

// The results of trainings in f32 and bf16.
std::vector<double> results(const Case& c) {
  const ModelOracle oracle = oracle_of(c);
  std::vector<double> out;
  for (const nxd_dtype_t dtype : {NXD_DTYPE_F32, NXD_DTYPE_BF16}) {
    Layout layout;
    layout.dtype = dtype;
    const Run run = on_ranks<Run>(layout, 7, [&](nxd_context_t* ctx) {
      const Module model = create_model(ctx, oracle.config, layout);
      return model ? train(model.get(), oracle, kSteps) : Run{};
    })[0];
    assert_int_equal(run.losses.size(), kSteps + 1);
    assert_true(run.losses.back() < run.losses.front());
    out.insert(out.end(), run.losses.begin(), run.losses.end());
    out.insert(out.end(), run.norms.begin(), run.norms.end());
    append(run.gradients, out);
    append(run.final, out);
  }
  return out;
}

// The process of one number of threads has these.
size_t case_to_write = 0;
std::string file_to_write;

void write_results(void**) {
  const std::vector<double> values = results(cases().at(case_to_write));
  std::ofstream file(file_to_write, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(double)));
  file.close();
  assert_true(file.good());
}

std::string bits_with(int threads, size_t index, const TempDir& dir) {
  const std::string path = dir.path() + "/" + std::to_string(threads);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "OMP_NUM_THREADS=" + std::to_string(threads) + " '" + self + "' " +
                              std::to_string(index) + " '" + path + "'";
  assert_int_equal(std::system(command.c_str()), 0);
  return read_file(path);
}

void check_case(void** state) {
  const size_t index = *static_cast<const size_t*>(*state);
  std::vector<std::string> bits;
  {
    const TempDir dir;
    for (const int threads : {1, 2, 3}) bits.push_back(bits_with(threads, index, dir));
  }
  assert_true(bits[0].size() > 1000);
  for (size_t i = 1; i < bits.size(); ++i) {
    if (bits[i] != bits[0]) {
      fail_msg("%s: results of %zu threads are not those of one", cases()[index].name, i + 1);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) {
    case_to_write = std::stoul(argv[1]);
    file_to_write = argv[2];
    const CMUnitTest one[] = {cmocka_unit_test(write_results)};
    return cmocka_run_group_tests(one, nullptr, nullptr);
  }
  static size_t indices[] = {0, 1, 2, 3};
  const CMUnitTest tests[] = {
      cmocka_unit_test_prestate(check_case, &indices[0]),
      cmocka_unit_test_prestate(check_case, &indices[1]),
      cmocka_unit_test_prestate(check_case, &indices[2]),
      cmocka_unit_test_prestate(check_case, &indices[3]),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
