// The C structs of the DLPack 1.x specification (ABI only), including the exchange table that
// frameworks publish as `type.__dlpack_c_exchange_api__`. Field order and sizes are the contract.
#pragma once

#include <cstdint>

namespace kiln::python {

enum DlDeviceType : std::int32_t { kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlCudaManaged = 13 };

enum DlTypeCode : std::uint8_t {
  kDlInt = 0,
  kDlUInt = 1,
  kDlFloat = 2,
  kDlOpaque = 3,
  kDlBfloat = 4,
  kDlComplex = 5,
  kDlBool = 6,
  kDlFloat8E4m3fn = 10,
  kDlFloat8E4m3fnuz = 11,
  kDlFloat8E5m2 = 12,
  kDlFloat8E5m2fnuz = 13,
  kDlFloat8E8m0fnu = 14
};

struct DlVersion {
  std::uint32_t major, minor;
};

struct DlDevice {
  std::int32_t type, id;
};

struct DlDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};

struct DlTensor {
  void* data;
  DlDevice device;
  std::int32_t ndim;
  DlDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null = contiguous (before 1.2)
  std::uint64_t byte_offset;
};

struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};

inline constexpr std::uint64_t kDlReadOnly = 1;

struct DlManagedTensorVersioned {
  DlVersion version;
  void* context;
  void (*deleter)(DlManagedTensorVersioned*);
  std::uint64_t flags;
  DlTensor tensor;
};

struct DlExchangeApi {
  DlVersion version;
  DlExchangeApi* previous;  // an older table, for consumers of an older major version
  int (*allocate)(DlTensor* prototype, DlManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, DlManagedTensorVersioned** out);
  int (*managed_to_object)(DlManagedTensorVersioned* tensor, void** out);  // steals `tensor`
  int (*tensor_from_object)(void* object, DlTensor* out);  // may be null; non-owning
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

}  // namespace kiln::python
