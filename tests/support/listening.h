// Where a process listens, as the kernel says.
#ifndef NXD_TESTS_SUPPORT_LISTENING_H
#define NXD_TESTS_SUPPORT_LISTENING_H

#include <dirent.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace nxd_test {

struct Listening {
  bool is_loopback;
  int port;
};

inline std::set<std::string> sockets_of(pid_t pid) {
  std::set<std::string> inodes;
  const std::string path = "/proc/" + std::to_string(pid) + "/fd";
  DIR* directory = opendir(path.c_str());
  if (!directory) return inodes;
  while (const dirent* entry = readdir(directory)) {
    char target[64];
    const ssize_t n = readlink((path + "/" + entry->d_name).c_str(), target, sizeof target);
    const std::string name(target, n > 0 ? static_cast<size_t>(n) : 0);
    if (name.rfind("socket:[", 0) == 0) inodes.insert(name.substr(8, name.size() - 9));
  }
  closedir(directory);
  return inodes;
}

inline std::vector<Listening> listening_of(pid_t pid) {
  const std::set<std::string> own = sockets_of(pid);
  std::vector<Listening> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream in(line);
      std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
      in >> number >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout;
      in >> inode;
      if (state != "0A" || own.count(inode) == 0) continue;
      const std::string address = local.substr(0, local.find(':'));
      // Words of the host's order: 127.x.y.z ends in 7F, and ::1 in 01000000.
      const bool is_loopback = address.size() == 8 ? address.substr(6) == "7F"
                                                   : address == "00000000000000000000000001000000";
      found.push_back({is_loopback, std::stoi(local.substr(local.find(':') + 1), nullptr, 16)});
    }
  }
  return found;
}

}  // namespace nxd_test

#endif
