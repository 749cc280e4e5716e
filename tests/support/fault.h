/* Faults of every kind under collectives of every kind: what the driver and the ranks share.
 *
 * Eight processes, tensor x pipeline x data parallel 2 x 2 x 2, run one kind of collective round
 * and round until a fault happens to one of them, the culprit. The ranks report what they saw
 * through a pipe, then make a new world of the survivors, and end; the driver judges. */
#ifndef NXD_TESTS_SUPPORT_FAULT_H
#define NXD_TESTS_SUPPORT_FAULT_H

#include <stddef.h>
#include <stdint.h>

#include "nxd.h"

enum { kFaultRanks = 8 };

enum {
  kFaultKill,           /* SIGKILL */
  kFaultStop,           /* SIGSTOP; continued when the others have noticed */
  kFaultStopKill,       /* SIGSTOP; killed when the others have noticed */
  kFaultMismatch,       /* calls something else than its peers, in every way */
  kFaultDestroyContext, /* destroys its context while peers wait */
  kFaultDestroyGroup,   /* destroys one group while peers wait */
  kFaultAbortContext,   /* from another thread, while it waits itself */
  kFaultAbortGroup,
  kFaultForkCalls,      /* forks; the child calls everything */
  kFaultForkKill,       /* forks, and is killed while the child lives on */
  kFaultDestroyWorks,   /* destroys works while they are pending */
  kFaultDestroyPending, /* destroys its context while works of its own are pending */
  kFaultCutLink,        /* nothing comes through between the two hosts of the ranks any more */
  kFaults
};

enum {
  kFaultAllReduce,
  kFaultAllGather,
  kFaultReduceScatter,
  kFaultBroadcast,
  kFaultAllToAll,
  kFaultMessage, /* send and receive */
  kFaultBarrier,
  kFaultCollectives
};

/* Properties of a kind of fault. */
typedef struct {
  const char* name;
  int signal;         /* sent by the driver; 0: the culprit does it to itself */
  int ends_culprit;   /* it is not among the survivors */
  int survivors_fail; /* 0: all ranks go on */
  int cuts_link;      /* there is no culprit: all ranks survive, and name one of the other host */
} fault_kind_t;

extern const fault_kind_t fault_kinds[kFaults];
extern const char* const fault_collectives[kFaultCollectives];

typedef struct {
  int fault, collective;
  int large;     /* buffers that do not travel with the headers */
  int world;     /* the world's group is used too; without it, most ranks share no group with the
                    culprit */
  int culprit;   /* -1: none */
  uint64_t seed; /* of the moment */
  int64_t timeout_ms;
  /* For a link that is cut: */
  int split; /* the bit of a rank that is the number of its host */
  int aside; /* ranks with this bit, if any, have no part in the calls that cross the link */
  int agent; /* the store is served by a process of the first host that is no rank */
  int held;  /* all ranks stand before their next call when it happens */
} fault_cell_t;

/* The host of a rank in a run whose link is cut. */
static inline int fault_host(const fault_cell_t* cell, int rank) {
  return (rank & cell->split) != 0;
}

/* Draws below limit. */
uint64_t fault_draw(uint64_t* seed, uint64_t limit);
/* A pause from microseconds to a tenth of a second, short ones as likely as long ones. */
uint64_t fault_draw_pause_us(uint64_t* seed);
double fault_now_ms(void);

enum {
  kReportReady,  /* about to start */
  kReportFault,  /* the culprit is about to do it to itself */
  kReportForked, /* number: process id of the child */
  kReportFailed, /* a call failed */
  kReportClosed, /* the failed context is gone */
  kReportWrong,  /* something that must not be */
  kReportEnd     /* all done; numbers: left over threads, descriptors, mappings */
};

typedef struct {
  int32_t rank, event;
  nxd_status_t status;
  int32_t root_rank;
  double at_ms;   /* when; CLOCK_MONOTONIC, which processes share */
  double call_ms; /* how long the failed call took */
  int64_t number[3];
  char operation[24];
  char group[24];
  char message[512];
} fault_report_t;

/* Two hosts for the ranks of one run at a time: network namespaces, and the process that carries
 * packets between them. */
typedef struct {
  char names[2][32];
  int64_t relay, agent; /* process ids */
  int runs;
} fault_link_t;

/* 0, and why, where such things are not permitted. The process that opens a link closes it. */
int fault_link_open(fault_link_t* link, char* why, size_t cap);
void fault_link_close(fault_link_t* link);
void fault_link_cut(const fault_link_t* link);
void fault_link_mend(const fault_link_t* link);
/* Before the ranks of a run are started: what they need to enter their hosts and to meet; and
 * afterwards. */
int fault_link_begin_run(fault_link_t* link, int agent);
void fault_link_end_run(fault_link_t* link);
/* In a rank: from now on it is on its host. 0 when it cannot. */
int fault_link_enter(int host);

/* True if this process was started to be a rank, and then its main. */
int fault_is_rank(void);
int fault_rank_main(void);

typedef enum { kFaultPassed, kFaultHung, kFaultLeaked, kFaultWrong, kFaultCrashed } fault_outcome_t;
extern const char* const fault_outcomes[];

typedef struct {
  fault_outcome_t outcome;
  double slowest_ms; /* from the fault to the last survivor's error */
  char slowest[640]; /* that error */
  char finding[1024];
} fault_result_t;

/* Starts the ranks, lets the fault happen, and judges. The slack on top of twice the timeout is for
 * the scheduler of a machine with far fewer processors than ranks. */
enum { kFaultSlackMs = 1500 };
/* link: for the faults that cut one; NULL otherwise. */
void fault_run(const fault_cell_t* cell, const char* transport, fault_link_t* link,
               fault_result_t* result);

#endif
