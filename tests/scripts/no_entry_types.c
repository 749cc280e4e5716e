/* To be loaded before a program: directories as those file systems read that tell no entry's type.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>

typedef int (*filter_fn)(const struct dirent*);
typedef int (*compare_fn)(const struct dirent**, const struct dirent**);
typedef int (*scandir_fn)(const char*, struct dirent***, filter_fn, compare_fn);

static filter_fn wanted;

static int without_type(const struct dirent* entry) {
  ((struct dirent*)entry)->d_type = DT_UNKNOWN;
  return wanted ? wanted(entry) : 1;
}

int scandir(const char* path, struct dirent*** entries, filter_fn filter, compare_fn compare) {
  scandir_fn next;
  *(void**)&next = dlsym(RTLD_NEXT, "scandir");
  wanted = filter;
  return next(path, entries, without_type, compare);
}
