/* The destructor of a Python capsule, without Python: this program exports the two functions of an
 * interpreter that it looks up, over capsules of its own. */
#include <stdlib.h>
#include <string.h>

#include "nxd.h"
#include "nxd/dlpack.h"

#include "support/check.h"

typedef struct {
  const char* name;
  void* pointer;
} capsule_t;

__attribute__((visibility("default"))) int PyCapsule_IsValid(void* object, const char* name);
__attribute__((visibility("default"))) void* PyCapsule_GetPointer(void* object, const char* name);

int PyCapsule_IsValid(void* object, const char* name) {
  const capsule_t* capsule = object;
  return capsule && capsule->pointer && strcmp(capsule->name, name) == 0;
}

void* PyCapsule_GetPointer(void* object, const char* name) {
  return PyCapsule_IsValid(object, name) ? ((capsule_t*)object)->pointer : NULL;
}

static int deleted;

static void count(DLManagedTensor* self) {
  ++deleted;
  free(self);
}

static void count_versioned(DLManagedTensorVersioned* self) {
  ++deleted;
  free(self);
}

static void what_nobody_took_is_deleted(void** state) {
  (void)state;
  deleted = 0;
  DLManagedTensor* legacy = calloc(1, sizeof *legacy);
  legacy->deleter = count;
  capsule_t capsule = {"dltensor", legacy};
  nxd_python_capsule_destroy(&capsule);
  assert_int_equal(deleted, 1);
  DLManagedTensorVersioned* versioned = calloc(1, sizeof *versioned);
  versioned->deleter = count_versioned;
  capsule = (capsule_t){"dltensor_versioned", versioned};
  nxd_python_capsule_destroy(&capsule);
  assert_int_equal(deleted, 2);
}

/* A consumer renames a capsule that it takes over. */
static void what_a_consumer_took_is_left(void** state) {
  (void)state;
  deleted = 0;
  DLManagedTensor taken = {.deleter = count};
  capsule_t capsule = {"used_dltensor", &taken};
  nxd_python_capsule_destroy(&capsule);
  capsule.name = "used_dltensor_versioned";
  nxd_python_capsule_destroy(&capsule);
  capsule.name = "dltensor of another kind";
  nxd_python_capsule_destroy(&capsule);
  assert_int_equal(deleted, 0);
}

static void a_tensor_may_have_no_deleter(void** state) {
  (void)state;
  DLManagedTensor bare = {.deleter = NULL};
  DLManagedTensorVersioned versioned = {.deleter = NULL};
  capsule_t capsule = {"dltensor", &bare};
  nxd_python_capsule_destroy(&capsule);
  capsule = (capsule_t){"dltensor_versioned", &versioned};
  nxd_python_capsule_destroy(&capsule);
  nxd_python_capsule_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_nobody_took_is_deleted),
      cmocka_unit_test(what_a_consumer_took_is_left),
      cmocka_unit_test(a_tensor_may_have_no_deleter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
