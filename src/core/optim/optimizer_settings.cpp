#include "core/optim/optimizer_settings.h"

#include <bit>
#include <string_view>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/json_value.h"
#include "core/base/json_writer.h"
#include "core/base/printable.h"

namespace nxd {
namespace {

constexpr const char* kGroupsKey = "groups";
constexpr const char* kScheduleKey = "schedule";
constexpr const char* kGroupOfKey = "group.";

// The text of a setting, an array of a known length; none where the file has none.
class SettingText {
 public:
  SettingText(const OptimizerSettings::Metadata& metadata, const std::string& path, const char* key)
      : where_(path + ": " + key + " in the metadata"), found_(metadata.find(key)) {
    there_ = found_ != metadata.end();
    if (there_) document_ = JsonDocument::parse(found_->second, where_, NXD_ERROR_CORRUPT);
  }

  const std::string& where() const { return where_; }
  bool is_there() const { return there_; }
  void check(bool holds, const char* expected) const {
    if (!holds) fail(NXD_ERROR_CORRUPT, where_, ": expected ", expected);
  }
  std::vector<JsonValue> values(const JsonValue& array, const char* expected) const {
    check(array.is_array(), expected);
    std::vector<JsonValue> out;
    array.for_each([&](const JsonValue& value) { out.push_back(value); });
    return out;
  }
  std::vector<JsonValue> values(const char* expected) const {
    return values(document_.root(), expected);
  }
  // A value that the optimizer does not take.
  template <class Check>
  void checked(const Check& run) const {
    try {
      run();
    } catch (const Error& error) {
      fail(error.status(), where_, ": ", error.what());
    }
  }

 private:
  std::string where_;
  OptimizerSettings::Metadata::const_iterator found_;
  bool there_ = false;
  JsonDocument document_;
};

std::vector<Hyperparameters> read_groups(const SettingText& text, const UpdateRule& rule,
                                         const std::vector<Hyperparameters>& own) {
  const char* const expected = "an array of numbers for each group";
  const std::vector<JsonValue> rows = text.values(expected);
  check_argument(rows.size() == own.size(), text.where(),
                 ": expected the state of an optimizer with ", own.size(),
                 own.size() == 1 ? " group" : " groups", " of parameters, got one with ",
                 rows.size());
  std::vector<Hyperparameters> out = own;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<JsonValue> row = text.values(rows[i], expected);
    text.check(row.size() == Hyperparameters::kCount, expected);
    for (int which = 0; which < Hyperparameters::kCount; ++which) {
      const JsonValue& value = row[static_cast<size_t>(which)];
      text.check(value.is_number(), expected);
      if (!rule.has(which)) continue;
      text.checked([&] { rule.check(which, value.number()); });
      out[i][which] = value.number();
    }
  }
  return out;
}

LearningRateSchedule read_course(const SettingText& text) {
  const char* const expected = "kind, steps of warm-up, steps and the last factor";
  const std::vector<JsonValue> row = text.values(expected);
  text.check(row.size() == 4 && row[0].integer() && row[1].integer() && row[2].integer() &&
                 row[3].is_number() && *row[0].integer() >= 0 && *row[0].integer() < 100,
             expected);
  const LearningRateSchedule schedule{static_cast<nxd_lr_schedule_t>(*row[0].integer()),
                                      *row[1].integer(), *row[2].integer(), row[3].number()};
  text.checked([&] { check_schedule(schedule); });
  return schedule;
}

}  // namespace

void OptimizerSettings::write(Metadata& metadata, const std::vector<std::string>& names) const {
  JsonWriter rows;
  rows.begin_array();
  for (const Hyperparameters& group : groups) {
    rows.begin_array();
    for (const double value : group.values) rows.real(value);
    rows.end_array();
  }
  rows.end_array();
  metadata[kGroupsKey] = rows.take();
  JsonWriter course;
  course.begin_array();
  course.number(schedule.kind);
  course.number(schedule.warmup_steps);
  course.number(schedule.total_steps);
  course.real(schedule.final_factor);
  course.end_array();
  metadata[kScheduleKey] = course.take();
  for (size_t i = 0; i < names.size(); ++i) {
    if (group_of[i] > 0) metadata[kGroupOfKey + names[i]] = std::to_string(group_of[i]);
  }
}

void OptimizerSettings::read(const Metadata& metadata, const std::string& path,
                             const std::vector<std::string>& names, const UpdateRule& rule) {
  const SettingText rows(metadata, path, kGroupsKey), course(metadata, path, kScheduleKey);
  std::vector<Hyperparameters> read = groups;
  if (rows.is_there()) {
    read = read_groups(rows, rule, groups);
    for (size_t i = 0; i < names.size(); ++i) {
      const auto found = metadata.find(kGroupOfKey + names[i]);
      const std::string group = found == metadata.end() ? "0" : found->second;
      check_argument(group == std::to_string(group_of[i]), path, ": expected parameter ", names[i],
                     " in group ", group_of[i], ", as here, got group ", printable(group));
    }
  }
  if (course.is_there()) schedule = read_course(course);
  groups = std::move(read);
}

uint32_t OptimizerSettings::digest(const UpdateRule& rule) const {
  Hash hash;
  const auto add_number = [&hash](double value) {
    hash.add(std::bit_cast<uint64_t>(value + 0.0));  // without a negative zero
  };
  const auto add_integer = [&hash](int64_t value) { hash.add(static_cast<uint64_t>(value)); };
  hash.add(std::string_view(rule.kind()));
  add_integer(rule.bf16_update());
  add_integer(static_cast<int64_t>(rule.states().size()));
  UpdateSpan some;
  some.learning_rate = 1;
  if (const auto form = rule.form(some, rule.defaults())) {
    hash.add(std::string_view(form->attributes));
    for (const double number : form->numbers) add_number(number);
  }
  for (const Hyperparameters& group : groups) {
    for (const double value : group.values) add_number(value);
  }
  for (const int group : group_of) add_integer(group);
  for (const int64_t value :
       {int64_t{schedule.kind}, schedule.warmup_steps, schedule.total_steps}) {
    add_integer(value);
  }
  add_number(schedule.final_factor);
  return hash.folded();
}

}  // namespace nxd
