// Loading and saving safetensors: mismatches, tied names, and moving a model between layouts.
#include <unistd.h>

#include <cstdio>

#include "support/model_support.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;
using nlohmann::json;

const LlamaOracle& oracle() {
  static const LlamaOracle value;
  return value;
}

std::string config_with(const char* name, const json& value) {
  json config = json::parse(oracle().config);
  config[name] = value;
  return config.dump();
}

std::string recorded_file(const std::string& model) {
  return oracles() + "/" + model + "/model.safetensors";
}

std::vector<std::string> names(nxd_load_report_t* report, nxd_mismatch_t kind) {
  size_t count = 0;
  NXD_TEST_OK(nxd_load_report_get_count(report, kind, &count));
  std::vector<std::string> out;
  for (size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    if (NXD_TEST_OK(nxd_load_report_get_name(report, kind, i, &name))) out.push_back(name);
  }
  return out;
}

// Loads, expects a mismatch and gives its report; no parameter may have changed.
Report refused_load(nxd_module_t* model, const std::string& path, const char* part) {
  const Named before = whole_parameters(model);
  nxd_load_report_t* report = nullptr;
  NXD_TEST_REFUSED(nxd_module_load_safetensors(model, path.c_str(), 1, &report),
                   NXD_ERROR_INVALID_ARGUMENT, part);
  NXD_TEST_CHECK(report != nullptr);
  NXD_TEST_CHECK(whole_parameters(model) == before);
  return Report(report);
}

void roundtrip_between_layouts(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/model.safetensors";
  const Layout four{4, true}, two{2, false};
  const Named written = on_ranks<Named>(four, 3, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, four);
    NXD_TEST_OK(nxd_module_save_safetensors(model.get(), path.c_str()));
    return whole_parameters(model.get());
  })[0];
  for (const Layout& layout : {two, Layout{1}, four}) {
    const auto read = on_ranks<Named>(layout, 4, [&](nxd_context_t* ctx) {
      const Module model = create_model(ctx, oracle().config, layout);
      NXD_TEST_CHECK(whole_parameters(model.get()) != written);
      NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 1, nullptr));
      return whole_parameters(model.get());
    });
    for (const Named& whole : read) assert_true(whole == written);
  }
  // bf16 is written as bf16, and read back exactly also into a wider model.
  const Layout narrow{2, false, NXD_DTYPE_BF16};
  const Named rounded = on_ranks<Named>(narrow, 3, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, narrow);
    NXD_TEST_OK(nxd_module_save_safetensors(model.get(), path.c_str()));
    return whole_parameters(model.get());
  })[0];
  const Layout wide{1, false, NXD_DTYPE_F64};
  assert_true(on_ranks<Named>(wide, 4, [&](nxd_context_t* ctx) {
                const Module model = create_model(ctx, oracle().config, wide);
                NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 1, nullptr));
                return whole_parameters(model.get());
              })[0] == rounded);
}

void mismatches(void**) {
  on_ranks<int>(Layout{2}, 0, [&](nxd_context_t* ctx) {
    const std::string& path = oracle().directory;
    const nxd_mismatch_t kinds[] = {NXD_MISMATCH_MISSING, NXD_MISMATCH_UNEXPECTED,
                                    NXD_MISMATCH_SHAPE};
    // Another vocabulary: two tensors of another shape.
    Module model = create_model(ctx, config_with("vocab_size", 128), Layout{2});
    Report report = refused_load(model.get(), path, "lm_head.weight: expected shape [128, 64]");
    NXD_TEST_CHECK(names(report.get(), kinds[0]).empty() && names(report.get(), kinds[1]).empty());
    NXD_TEST_CHECK(names(report.get(), kinds[2]) ==
                   (std::vector<std::string>{"model.embed_tokens.weight", "lm_head.weight"}));
    // Not strictly: the rest is read.
    const Named before = whole_parameters(model.get());
    nxd_load_report_t* out = nullptr;
    NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 0, &out));
    report.reset(out);
    NXD_TEST_CHECK(names(out, kinds[2]).size() == 2);
    const Named after = whole_parameters(model.get());
    NXD_TEST_CHECK(after.at("lm_head.weight") == before.at("lm_head.weight"));
    NXD_TEST_CHECK(after.at("model.norm.weight") != before.at("model.norm.weight"));
    // Fewer layers: nine tensors too many; more layers and biases: some are missing.
    model = create_model(ctx, config_with("num_hidden_layers", 3), Layout{2});
    report = refused_load(model.get(), path, "9 unexpected");
    NXD_TEST_CHECK(names(report.get(), kinds[1]).size() == 9);
    NXD_TEST_CHECK(names(report.get(), kinds[1])[0].find("model.layers.3.") == 0);
    model = create_model(ctx, config_with("num_hidden_layers", 5), Layout{2});
    report = refused_load(model.get(), path, "9 missing");
    NXD_TEST_CHECK(names(report.get(), kinds[0]).size() == 9);
    // A file with none of the model's names: all are missing, as the model has them.
    report = refused_load(model.get(), recorded_file("bert_tiny"), "missing");
    NXD_TEST_CHECK(names(report.get(), kinds[0])[0] == "model.embed_tokens.weight");
    return 0;
  });
}

// A tied model finds its one table under either name, and is written under the owner's.
void tied_names(void**) {
  const TempDir directory;
  const std::string path = directory.path() + "/tied.safetensors";
  const std::string config = config_with("tie_word_embeddings", true);
  on_ranks<int>(Layout{2}, 5, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, config, Layout{2});
    NXD_TEST_OK(nxd_module_save_safetensors(model.get(), path.c_str()));
    const Named written = whole_parameters(model.get());
    NXD_TEST_CHECK(written.count("lm_head.weight") == 0);
    const Module again = create_model(ctx, config, Layout{2});
    NXD_TEST_OK(nxd_module_initialize(again.get(), 99));
    NXD_TEST_OK(nxd_module_load_safetensors(again.get(), path.c_str(), 1, nullptr));
    NXD_TEST_CHECK(whole_parameters(again.get()) == written);
    // The recorded file has both names, with values of their own: it is that of an untied model.
    const Report report = refused_load(again.get(), oracle().directory,
                                       "lm_head.weight: expected the values of model.embed_tokens");
    NXD_TEST_CHECK(names(report.get(), NXD_MISMATCH_UNEXPECTED) ==
                   (std::vector<std::string>{"lm_head.weight"}));
    // Not strictly, the owner's is read.
    NXD_TEST_OK(nxd_module_load_safetensors(again.get(), oracle().directory.c_str(), 0, nullptr));
    const Module untied = load_model(ctx, oracle().directory, Layout{2});
    NXD_TEST_CHECK(whole_parameters(again.get()).at("model.embed_tokens.weight") ==
                   whole_parameters(untied.get()).at("model.embed_tokens.weight"));
    nxd_parameter_t *owner = nullptr, *alias = nullptr;
    NXD_TEST_OK(nxd_module_find_parameter(again.get(), "model.embed_tokens.weight", &owner));
    NXD_TEST_OK(nxd_module_find_parameter(again.get(), "lm_head.weight", &alias));
    NXD_TEST_CHECK(owner == alias);
    return 0;
  });
}

// A file's header and the tensors' bytes.
std::pair<json, std::string> parts_of(const std::string& path) {
  const std::string content = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, content.data(), sizeof length);
  return {json::parse(content.substr(sizeof length, length)),
          content.substr(sizeof length + length)};
}

void write_parts(const std::string& path, const json& header, const std::string& data) {
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text << data;
}

// A recorded file with masks beside the weights of a layer, as older ones have them, and with the
// frequencies of a Llama's.
std::string file_with_masks(const TempDir& directory, const std::string& model,
                            const std::string& attention) {
  auto [header, data] = parts_of(recorded_file(model));
  const auto add = [&, &header = header, &data = data](const char* name, const char* dtype,
                                                       const json& shape, size_t bytes) {
    header[attention + name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes}}};
    data.append(bytes, '\0');
  };
  add(".bias", "BOOL", {1, 1, 4, 4}, 16);
  add(".masked_bias", "F32", json::array(), 4);
  add(".rotary_emb.inv_freq", "F32", {2}, 8);
  const std::string path = directory.path() + "/" + attention + ".safetensors";
  write_parts(path, header, data);
  return path;
}

// A family passes over the masks of its own older files, and over no others.
void masks_of_older_files(void**) {
  const TempDir directory;
  const std::pair<const char*, const char*> families[] = {
      {"gpt2_tiny", "transformer.h.1.attn"}, {"gpt_neox_tiny", "gpt_neox.layers.1.attention"}};
  for (const auto& [name, attention] : families) {
    const std::string file = file_with_masks(directory, name, attention);
    const std::string strange = file_with_masks(directory, name, "layers.1.self_attn");
    on_ranks<int>(Layout{}, 5, [&, name = name](nxd_context_t* ctx) {
      const ModelOracle recorded(name);
      const Module model = create_model(ctx, recorded.config, Layout{});
      const Report report = refused_load(model.get(), strange, "2 unexpected");
      NXD_TEST_OK(nxd_module_load_safetensors(model.get(), file.c_str(), 1, nullptr));
      const Module want = load_model(ctx, recorded.directory, Layout{});
      NXD_TEST_CHECK(whole_parameters(model.get()) == whole_parameters(want.get()));
      return 0;
    });
  }
}

// The file of the body alone lacks its name. A tied model has all of its parameters in it, another
// one also needs its head.
void bare_models(void**) {
  const TempDir directory;
  const std::pair<std::string, std::string> families[] = {{"gpt2_tiny", "transformer."},
                                                          {"llama_tiny", "model."}};
  for (const auto& [name, prefix] : families) {
    const auto [header, data] = parts_of(recorded_file(name));
    json bare;
    for (const auto& [key, entry] : header.items()) {
      bare[key.rfind(prefix, 0) == 0 ? key.substr(prefix.size()) : key] = entry;
    }
    const std::string path = directory.path() + "/" + name;
    write_parts(path, bare, data);
    on_ranks<int>(Layout{2}, 5, [&, name = name](nxd_context_t* ctx) {
      const ModelOracle recorded(name);
      const Module model = create_model(ctx, recorded.config, Layout{2});
      NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 1, nullptr));
      const Module want = load_model(ctx, recorded.directory, Layout{2});
      NXD_TEST_CHECK(whole_parameters(model.get()) == whole_parameters(want.get()));
      return 0;
    });
  }
}

using Ends = std::vector<std::pair<std::string, std::string>>;

json with_ends(const json& header, const Ends& ends) {
  json renamed;
  for (const auto& [key, entry] : header.items()) {
    std::string name = key;
    for (const auto& [end, other] : ends) {
      if (name.ends_with(end)) name.replace(name.size() - end.size(), end.size(), other);
    }
    renamed[name] = entry;
  }
  return renamed;
}

const Ends kFirstBerts = {{"LayerNorm.weight", "LayerNorm.gamma"},
                          {"LayerNorm.bias", "LayerNorm.beta"}};

// The first BERTs' files call the values of a norm gamma and beta. Transformers 5 calls the head of
// a GPT-NeoX as that of others.
void names_of_other_releases(void**) {
  const TempDir directory;
  const std::pair<std::string, Ends> families[] = {
      {"bert_tiny", kFirstBerts}, {"gpt_neox_tiny", {{"embed_out.weight", "lm_head.weight"}}}};
  for (const auto& [name, ends] : families) {
    const auto [header, data] = parts_of(recorded_file(name));
    const std::string path = directory.path() + "/" + name;
    const json renamed = with_ends(header, ends);
    NXD_TEST_CHECK(renamed != header && renamed.size() == header.size());
    write_parts(path, renamed, data);
    on_ranks<int>(Layout{2}, 5, [&, name = name](nxd_context_t* ctx) {
      const ModelOracle recorded(name);
      const Module model = create_model(ctx, recorded.config, Layout{2});
      NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 1, nullptr));
      const Module want = load_model(ctx, recorded.directory, Layout{2});
      NXD_TEST_CHECK(whole_parameters(model.get()) == whole_parameters(want.get()));
      return 0;
    });
  }
}

// The tensors of a part of a model, of its recorded file, under the part's own names and those that
// first releases have; and one that follows from the configuration.
std::string file_of_part(const TempDir& directory, const std::string& model,
                         const std::string& prefix, const std::string& derived) {
  const auto [header, data] = parts_of(recorded_file(model));
  const json first = with_ends(header, kFirstBerts);
  json part;
  std::string kept;
  for (const auto& [name, entry] : first.items()) {
    if (!name.starts_with(prefix)) continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    json& own = part[name.substr(prefix.size())] = entry;
    own["data_offsets"] = {kept.size(), kept.size() + end - begin};
    kept += data.substr(begin, end - begin);
  }
  part[derived] = {
      {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {kept.size(), kept.size() + 4}}};
  const std::string path = directory.path() + "/" + derived + ".safetensors";
  write_parts(path, part, kept + std::string(4, '\0'));
  return path;
}

// A part of a model reads its own files as the whole model does.
void parts_of_models(void**) {
  const TempDir directory;
  const struct {
    const char *model, *part, *derived;
  } families[] = {{"gpt2_tiny", "transformer", "h.1.attn.masked_bias"},
                  {"gpt2_tiny", "transformer.h.1.attn", "bias"},
                  {"gpt_neox_tiny", "gpt_neox", "layers.1.attention.bias"},
                  {"bert_tiny", "bert", "embeddings.position_ids"},
                  {"bert_tiny", "bert.embeddings.LayerNorm", "sub.rotary_emb.inv_freq"}};
  for (const auto& family : families) {
    const std::string prefix = std::string(family.part) + ".";
    const std::string path = file_of_part(directory, family.model, prefix, family.derived);
    const std::string strange = file_of_part(directory, family.model, prefix, "h.7.attn.bias");
    on_ranks<int>(Layout{2}, 5, [&](nxd_context_t* ctx) {
      const ModelOracle recorded(family.model);
      const Module model = create_model(ctx, recorded.config, Layout{2});
      nxd_module_t* part = nullptr;
      NXD_TEST_OK(nxd_module_find_module(model.get(), family.part, &part));
      const Report report = refused_load(part, strange, "1 unexpected: h.7.attn.bias");
      NXD_TEST_OK(nxd_module_load_safetensors(part, path.c_str(), 1, nullptr));
      const Named want = whole_parameters(load_model(ctx, recorded.directory, Layout{2}).get());
      for (const auto& [name, values] : whole_parameters(part)) {
        NXD_TEST_CHECK(want.at(prefix + name) == values);
      }
      return 0;
    });
  }
}

// The whole of a BERT has more than the file of its body, which it reads all the same.
void bare_bert(void**) {
  const TempDir directory;
  const std::string path = file_of_part(directory, "bert_tiny", "bert.", "embeddings.position_ids");
  on_ranks<int>(Layout{2}, 5, [&](nxd_context_t* ctx) {
    const ModelOracle recorded("bert_tiny");
    const Module model = create_model(ctx, recorded.config, Layout{2});
    nxd_load_report_t* given = nullptr;
    NXD_TEST_OK(nxd_module_load_safetensors(model.get(), path.c_str(), 0, &given));
    const Report report(given);
    NXD_TEST_CHECK(names(given, NXD_MISMATCH_UNEXPECTED).empty());
    for (const std::string& name : names(given, NXD_MISMATCH_MISSING)) {
      NXD_TEST_CHECK(name.starts_with("cls."));
    }
    return 0;
  });
}

// A parameter under both of its names is not one that a file has once.
void both_names(void**) {
  const TempDir directory;
  const ModelOracle recorded("bert_tiny");
  const auto [header, data] = parts_of(recorded_file("bert_tiny"));
  json old = with_ends(header, kFirstBerts);
  old["cls.predictions.transform.LayerNorm.weight"] = old["bert.embeddings.LayerNorm.gamma"];
  old.erase("bert.embeddings.LayerNorm.gamma");
  const std::string mixed = directory.path() + "/mixed.safetensors";
  write_parts(mixed, old, data);
  on_ranks<int>(Layout{2}, 5, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, recorded.config, Layout{2});
    const Report report = refused_load(model.get(), mixed,
                                       "1 missing: bert.embeddings.LayerNorm.weight; 1 unexpected: "
                                       "cls.predictions.transform.LayerNorm.gamma");
    return 0;
  });
}

// Transformers 5 computes an untied BERT's logits with the decoder's bias alone, and keeps another
// one beside it, which older releases tie to it. Both are written; the decoder's is read where it
// is there.
void biases_of_an_untied_bert(void**) {
  constexpr const char *kDecoder = "cls.predictions.decoder.bias", *kOther = "cls.predictions.bias";
  const TempDir directory;
  const ModelOracle recorded("bert_tiny");
  json config = json::parse(recorded.config);
  config["tie_word_embeddings"] = false;
  const std::string path = directory.path() + "/untied.safetensors";
  on_ranks<int>(Layout{2}, 5, [&](nxd_context_t* ctx) {
    NXD_TEST_OK(nxd_module_save_safetensors(create_model(ctx, config.dump(), Layout{2}).get(),
                                            path.c_str()));
    return 0;
  });
  auto [header, data] = parts_of(path);
  const size_t decoder = header.at(kDecoder)["data_offsets"][0];
  const size_t other = header.at(kOther)["data_offsets"][0];
  const float value = 0.5F, unused = 0.25F;
  std::memcpy(&data[decoder], &value, sizeof value);
  std::memcpy(&data[other], &unused, sizeof unused);
  const std::string both = directory.path() + "/both.safetensors";
  write_parts(both, header, data);
  json old = header;
  const size_t end = old.at(kDecoder)["data_offsets"][1], gone = end - decoder;
  old.erase(kDecoder);
  for (auto& entry : old) {
    if (!entry.contains("data_offsets")) continue;
    for (auto& offset : entry["data_offsets"]) {
      if (offset.get<size_t>() >= end) offset = offset.get<size_t>() - gone;
    }
  }
  const std::string alone = directory.path() + "/alone.safetensors";
  write_parts(alone, old, std::string(data).erase(decoder, gone));
  on_ranks<int>(Layout{2}, 5, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, config.dump(), Layout{2});
    NXD_TEST_OK(nxd_module_load_safetensors(model.get(), both.c_str(), 1, nullptr));
    NXD_TEST_CHECK(whole_parameters(model.get()).at(kOther)[0] == value);
    NXD_TEST_OK(nxd_module_load_safetensors(model.get(), alone.c_str(), 1, nullptr));
    NXD_TEST_CHECK(whole_parameters(model.get()).at(kOther)[0] == unused);
    // The two are one parameter of a tied model.
    const Module tied = create_model(ctx, recorded.config, Layout{2});
    refused_load(tied.get(), both, "cls.predictions.decoder.bias: expected the values of");
    return 0;
  });
}

void bad_files(void**) {
  const TempDir directory;
  const std::string bad = directory.path() + "/bad.safetensors";
  std::FILE* file = std::fopen(bad.c_str(), "wb");
  std::fputs("this is no safetensors file at all", file);
  std::fclose(file);
  on_ranks<int>(Layout{2}, 0, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, Layout{2});
    const Named before = whole_parameters(model.get());
    nxd_load_report_t* report = reinterpret_cast<nxd_load_report_t*>(ctx);
    const std::string none = directory.path() + "/none.safetensors";
    NXD_TEST_REFUSED(nxd_module_load_safetensors(model.get(), none.c_str(), 1, &report),
                     NXD_ERROR_IO, "none.safetensors");
    NXD_TEST_CHECK(report == nullptr);
    NXD_TEST_REFUSED(nxd_module_load_safetensors(model.get(), bad.c_str(), 0, &report),
                     NXD_ERROR_CORRUPT, "bad.safetensors");
    NXD_TEST_CHECK(whole_parameters(model.get()) == before);
    // The writer's failure is every rank's, and the ranks stay in step.
    const std::string nowhere = directory.path() + "/no/such/directory/model.safetensors";
    NXD_TEST_REFUSED(nxd_module_save_safetensors(model.get(), nowhere.c_str()), NXD_ERROR_IO,
                     "no/such/directory");
    NXD_TEST_CHECK(whole_parameters(model.get()) == before);
    return 0;
  });
}

void bad_arguments(void**) {
  on_ranks<int>(Layout{2}, 0, [&](nxd_context_t* ctx) {
    const Module model = create_model(ctx, oracle().config, Layout{2});
    const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
    NXD_TEST_REFUSED(nxd_module_load_safetensors(nullptr, "x", 1, nullptr), bad, "root");
    NXD_TEST_REFUSED(nxd_module_load_safetensors(model.get(), nullptr, 1, nullptr), bad, "path");
    NXD_TEST_REFUSED(nxd_module_load_safetensors(model.get(), "x", 2, nullptr), bad, "strict");
    NXD_TEST_REFUSED(nxd_module_save_safetensors(nullptr, "x"), bad, "root");
    // One rank's NULL path is rejected on both, at once.
    int32_t rank = 0;
    NXD_TEST_OK(nxd_context_get_rank(ctx, &rank));
    const TempDir directory;
    const std::string path = directory.path() + "/model.safetensors";
    NXD_TEST_REFUSED(nxd_module_save_safetensors(model.get(), rank == 0 ? path.c_str() : nullptr),
                     bad, rank == 0 ? "1" : "path");
    NXD_TEST_CHECK(access(path.c_str(), F_OK) != 0);

    nxd_load_report_t* report = nullptr;
    NXD_TEST_OK(nxd_module_load_safetensors(model.get(), oracle().directory.c_str(), 1, &report));
    const Report owned(report);
    size_t count = 3;
    const char* name = "x";
    NXD_TEST_REFUSED(nxd_load_report_get_count(nullptr, 0, &count), bad, "report");
    NXD_TEST_CHECK(count == 0);
    NXD_TEST_REFUSED(nxd_load_report_get_count(report, 3, &count), bad, "kind");
    NXD_TEST_REFUSED(nxd_load_report_get_count(report, 0, nullptr), bad, "out_count");
    NXD_TEST_REFUSED(nxd_load_report_get_name(report, 0, 0, &name), bad, "index");
    NXD_TEST_CHECK(name == nullptr);
    nxd_load_report_destroy(nullptr);
    return 0;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(roundtrip_between_layouts),
      cmocka_unit_test(mismatches),
      cmocka_unit_test(tied_names),
      cmocka_unit_test(masks_of_older_files),
      cmocka_unit_test(bare_models),
      cmocka_unit_test(names_of_other_releases),
      cmocka_unit_test(parts_of_models),
      cmocka_unit_test(bare_bert),
      cmocka_unit_test(both_names),
      cmocka_unit_test(biases_of_an_untied_bert),
      cmocka_unit_test(bad_files),
      cmocka_unit_test(bad_arguments),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
