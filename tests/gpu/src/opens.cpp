// Opens a library in a thread, among others that idle, and calls its function: opens LIBRARY FUNCTION [falls-back]
#include <chrono>
#include <dlfcn.h>
#include <thread>
#include <vector>

int main(int count, char **words) {
  std::vector<std::thread> idle;
  int status = 90;
  if (count < 3) return 91;
  for (int each = 0; each < 40; each++)
    idle.emplace_back([] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); });
  std::thread([&] {
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    auto function = reinterpret_cast<int (*)(float *)>(library ? dlsym(library, words[2]) : nullptr);
    if (function) status = function(nullptr);
  }).join();
  for (auto &each : idle) each.join();
  return count > 3 && status == 209 ? 0 : status; // what it cannot do there, it does itself
}
