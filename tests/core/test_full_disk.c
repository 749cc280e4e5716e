/* Disks that are full: programs that write files run in file systems of one page, of two, and so
 * on, and of few files, until all that they write has room. Each rank gets a result or an error,
 * and one of the ranks is told that there is no room; no file is left beside the programs' own; and
 * with room the same program succeeds. NXD_LONG=1: every size, not some. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exhaustion/programs.h"

/* After the rest: it defines fail(). */
#include "support/check.h"

enum { kTimeoutMs = 1000, kRetryTimeoutMs = 60000, kMostPages = 4096, kMostFiles = 64 };

static char disk[64];

static void mount_disk(const char* options) {
  if (mount("nxd", disk, "tmpfs", 0, options) != 0) {
    perror("mount");
    abort();
  }
}

static void write_text(const char* path, const char* text) {
  FILE* file = fopen(path, "w");
  if (!file) return;
  fputs(text, file);
  fclose(file);
}

/* A namespace of mounts of this process's own; 0 where it may have none. */
static int enter_namespace(void) {
  char map[64];
  const unsigned user = geteuid(), group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 0;
    snprintf(map, sizeof map, "%u %u 1", user, user);
    write_text("/proc/self/uid_map", map);
    write_text("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", group, group);
    write_text("/proc/self/gid_map", map);
  }
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 0;
  return mount("nxd", disk, "tmpfs", 0, NULL) == 0 && umount(disk) == 0;
}

static int count_entries(const char* path) {
  int count = 0;
  DIR* entries = opendir(path);
  if (!entries) abort();
  for (const struct dirent* entry; (entry = readdir(entries)) != NULL;)
    count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
  closedir(entries);
  return count;
}

static void check_well(const program_t* program, const char* where, const rank_end_t* ends) {
  for (int i = 0; i < program->ranks; ++i) {
    if (ends[i].status == NXD_OK && !ends[i].wrong) continue;
    fail_msg("%s with room after %s, rank %d: %s: %s: %s", program->name, where, i, ends[i].call,
             nxd_status_string(ends[i].status), ends[i].message);
  }
}

/* 1 where a rank failed, which it may for want of room alone. */
static int check_full(const program_t* program, const char* where, const rank_end_t* ends) {
  int failed = 0, told = 0;
  for (int i = 0; i < program->ranks; ++i) {
    const rank_end_t* end = &ends[i];
    if (end->wrong) fail_msg("%s with %s, rank %d: %s", program->name, where, i, end->call);
    if (end->status == NXD_OK) continue;
    ++failed;
    const int is_told = strstr(end->message, "No space left on device") != NULL;
    told += is_told;
    if (is_told ? end->status != NXD_ERROR_IO
                : end->status != NXD_ERROR_TIMEOUT && end->status != NXD_ERROR_PEER_LOST)
      fail_msg("%s with %s, rank %d: %s: %s: %s", program->name, where, i, end->call,
               nxd_status_string(end->status), end->message);
  }
  if (failed && !told) fail_msg("%s with %s: no rank is told so", program->name, where);
  return failed;
}

static int fails_with(const program_t* program, const char* options, const char* where) {
  rank_end_t ends[kMostRanks];
  char path[sizeof disk + 16];
  snprintf(path, sizeof path, "%s/out.json", disk);
  mount_disk(options);
  run_program(program, kTimeoutMs, path, ends);
  const int failed = check_full(program, where, ends);
  const int left = count_entries(disk);
  if (left) fail_msg("%s with %s: %d entries are left", program->name, where, left);
  if (mount(NULL, disk, NULL, MS_REMOUNT, "size=64m,nr_inodes=10000") != 0) abort();
  run_program(program, kRetryTimeoutMs, path, ends);
  check_well(program, where, ends);
  if (umount(disk) != 0) abort();
  return failed;
}

static int next_size(int size) { return getenv("NXD_LONG") ? size + 1 : size + 1 + size / 2; }

static void fails_until_there_is_room(const program_t* program) {
  char options[64], where[64];
  int failures = 0;
  for (int pages = 1; pages <= kMostPages; pages = next_size(pages)) {
    snprintf(options, sizeof options, "size=%ld", pages * sysconf(_SC_PAGESIZE));
    snprintf(where, sizeof where, "%d pages", pages);
    if (!fails_with(program, options, where)) break;
    ++failures;
  }
  if (failures == 0) fail_msg("%s: it succeeds with one page", program->name);
  failures = 0;
  /* The first is the root of the file system. */
  for (int files = 1; files <= kMostFiles; files = next_size(files)) {
    snprintf(options, sizeof options, "nr_inodes=%d", files);
    snprintf(where, sizeof where, "room for %d files", files - 1);
    if (!fails_with(program, options, where)) break;
    ++failures;
  }
  if (failures == 0) fail_msg("%s: it succeeds without a file", program->name);
}

static void stays_usable(void** unused) {
  (void)unused;
  static const char* const names[] = {"alone", "stores", "training", "pipeline", "state"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    for (int p = 0; p < n_programs; ++p)
      if (strcmp(programs[p].name, names[i]) == 0) fails_until_there_is_room(&programs[p]);
}

int main(void) {
  snprintf(disk, sizeof disk, "/tmp/nxd-full-disk-XXXXXX");
  if (!mkdtemp(disk)) abort();
  if (!enter_namespace()) {
    rmdir(disk);
    puts("skip: full disks: this process may mount no file systems; run it as root");
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(stays_usable)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  umount(disk);
  rmdir(disk);
  return failed;
}
