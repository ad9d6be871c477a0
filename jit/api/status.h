// The noexcept twins of the public functions: what a call throws, as a Status.
#pragma once

#include <stdexcept>

#include "kiln/kiln.h"

namespace kiln {

template <class Call>
Status status_of(Call&& call) noexcept {
  try {
    try {
      call();
      return {};
    } catch (const TypeError& error) {
      return {StatusCode::type_error, error.what()};
    } catch (const std::invalid_argument& error) {
      return {StatusCode::invalid_argument, error.what()};
    } catch (const CompileError& error) {
      return {StatusCode::compile_error, error.what()};
    } catch (const CompileDisabled& error) {
      return {StatusCode::compile_disabled, error.what()};
    } catch (const EmulatorError& error) {
      return {StatusCode::emulator_error, error.what()};
    } catch (const CudaError& error) {
      return {StatusCode::cuda_error, error.what()};
    } catch (const std::exception& error) {
      return {StatusCode::internal, error.what()};
    }
  } catch (...) {  // copying the message failed
    return {StatusCode::internal, {}};
  }
}

}  // namespace kiln
