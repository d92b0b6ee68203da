// Makes a random program from a seed. The same seed gives the same program on every platform.
#pragma once

#include "random/program.hpp"

namespace random_programs {

Program generate(std::uint64_t seed);

}  // namespace random_programs
