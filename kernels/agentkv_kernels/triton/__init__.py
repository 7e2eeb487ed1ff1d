"""The ops as Triton kernels, one module per op. Importing one needs triton; :mod:`agentkv_kernels.ops` decides when."""
