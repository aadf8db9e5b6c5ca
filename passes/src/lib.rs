//! Graph-to-graph passes, one file a pass; a pass never looks at a kernel except through `KernelLibrary`.
