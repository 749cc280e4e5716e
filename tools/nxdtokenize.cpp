// nxdtokenize: makes a file of token ids of text, for nxd_data_loader_create.
#include <getopt.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/json_writer.h"
#include "core/checkpoint/file.h"
#include "standard_output.h"

namespace {

constexpr char kUsage[] =
    "usage: nxdtokenize [OPTION...] TEXT... OUT\n"
    "\n"
    "Writes the bytes of text files as ids of 16 bits, one file after another, to OUT, and what a\n"
    "model needs to know of them to OUT.json. Each is complete, or not there. OUT ends in neither\n"
    ".txt nor .u32, which mean other ids, and is written over only where OUT.json is there, too.\n"
    "OUT.json is written over only where it is such a note.\n"
    "\n"
    "  --end-of-text     id 256 after each file; there are 257 ids then, else 256\n"
    "  --tokenizer FILE  tokenizer.json: unsupported, see docs/data.md for another way\n"
    "  -h, --help        this text\n";

constexpr uint16_t kEndOfText = 256;
constexpr size_t kPart = size_t{1} << 20U;

struct Settings {
  bool end_of_text = false;
  std::vector<std::string> texts;
  std::string out;
};

std::string note_of(const Settings& settings) { return settings.out + ".json"; }

// The beginning of what note_text() makes.
constexpr std::string_view kNoteBegins = R"({"tokenizer":"bytes")";

// False where there is another file by that name, such as a model's tokenizer.json beside OUT.
bool is_note_or_absent(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return true;  // AtomicFile says what else it is
  std::ifstream file(path, std::ios::binary);
  std::string begins(kNoteBegins.size(), '\0');
  file.read(begins.data(), static_cast<std::streamsize>(begins.size()));
  return file && begins == kNoteBegins;
}

// False where a file would be lost: a text, or the last text of a list that has no OUT behind it.
bool may_write(const Settings& settings) {
  std::error_code error;
  for (const std::string& text : settings.texts) {
    for (const std::string& written : {settings.out, note_of(settings)}) {
      if (!std::filesystem::equivalent(text, written, error)) continue;
      std::fprintf(stderr,
                   "nxdtokenize: %s: expected an OUT by which no TEXT is written over, got %s\n",
                   text.c_str(), settings.out.c_str());
      return false;
    }
  }
  if (!is_note_or_absent(note_of(settings))) {
    std::fprintf(stderr,
                 "nxdtokenize: %s: expected a note of ids, or no file, beside OUT, got another\n",
                 note_of(settings).c_str());
    return false;
  }
  if (!std::filesystem::exists(settings.out, error) ||
      std::filesystem::exists(note_of(settings), error)) {
    return true;
  }
  std::fprintf(stderr,
               "nxdtokenize: %s: expected OUT as the last argument, which is not there yet or has "
               "%s beside it\n",
               settings.out.c_str(), note_of(settings).c_str());
  return false;
}

// 0, 1 after --help, -1 when the arguments are wrong.
int parse(int argc, char** argv, Settings& settings) {
  const option known[] = {{"help", no_argument, nullptr, 'h'},
                          {"end-of-text", no_argument, nullptr, 'e'},
                          {"tokenizer", required_argument, nullptr, 't'},
                          {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "h", known, nullptr)) != -1;) {
    if (c == 'h') return 1;
    if (c == '?') return -1;
    if (c == 't') {
      std::fprintf(stderr,
                   "nxdtokenize: %s: unsupported: Debian has no library that reads a Hugging Face "
                   "tokenizer\n",
                   optarg);
      return -1;
    }
    settings.end_of_text = true;
  }
  if (argc - optind < 2) {
    std::fprintf(stderr, "nxdtokenize: expected TEXT and OUT, got %d arguments\n", argc - optind);
    return -1;
  }
  settings.texts.assign(argv + optind, argv + argc - 1);
  settings.out = argv[argc - 1];
  for (const char* ending : {".txt", ".u32"}) {
    if (!settings.out.ends_with(ending)) continue;
    std::fprintf(stderr,
                 "nxdtokenize: %s: expected OUT as the last argument, with another ending than %s, "
                 "by which a loader takes a file for one of other ids\n",
                 settings.out.c_str(), ending);
    return -1;
  }
  return may_write(settings) ? 0 : -1;
}

void append(const nxd::InputFile& text, nxd::AtomicFile& out) {
  std::vector<uint8_t> bytes(kPart);
  std::vector<uint16_t> ids(kPart);
  for (uint64_t done = 0; done < text.size();) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(kPart, text.size() - done));
    text.read(done, bytes.data(), size);
    std::copy_n(bytes.begin(), size, ids.begin());
    out.write(ids.data(), size * sizeof ids[0]);
    done += size;
  }
}

std::string note_text(const Settings& settings, uint64_t tokens) {
  nxd::JsonWriter note;
  note.begin_object();
  note.key("tokenizer");
  note.string("bytes");
  note.key("format");
  note.string("uint16");
  note.key("vocab_size");
  note.natural(settings.end_of_text ? kEndOfText + 1U : kEndOfText);
  if (settings.end_of_text) {
    note.key("end_of_text");
    note.natural(kEndOfText);
  }
  note.key("tokens");
  note.natural(tokens);
  note.end_object();
  return note.take() + "\n";
}

void tokenize(const Settings& settings) {
  nxd::AtomicFile out(settings.out);
  uint64_t tokens = 0;
  for (const std::string& path : settings.texts) {
    const nxd::InputFile text(path);
    append(text, out);
    tokens += text.size();
    if (!settings.end_of_text) continue;
    out.write(&kEndOfText, sizeof kEndOfText);
    ++tokens;
  }
  nxd::AtomicFile note(note_of(settings));
  const std::string text = note_text(settings, tokens);
  note.write(text.data(), text.size());
  // A run that is killed leaves no ids beside a note of others, and none without a note, which the
  // next run could not write over.
  if (nxd::file_exists(settings.out)) nxd::remove_file(settings.out);
  note.commit();
  out.commit();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  const int parsed = parse(argc, argv, settings);
  if (parsed != 0) {
    std::fputs(kUsage, parsed > 0 ? stdout : stderr);
    return parsed > 0 ? end_output("nxdtokenize", 0) : 2;
  }
  try {
    tokenize(settings);
    return 0;
  } catch (const std::exception&) {
    std::fprintf(stderr, "nxdtokenize: %s\n", nxd::Error::current().what());
    return 1;
  }
}
