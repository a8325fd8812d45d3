/* What the runtime has: everything. An exported network brings a file of this name that leaves out what it does not use. */
#ifndef MEMBOUND_MICRO_CONFIG_H
#define MEMBOUND_MICRO_CONFIG_H

#define MB_HAS_DENSE 1     /* weights without positions */
#define MB_HAS_SPARSE 1
#define MB_HAS_STRIDE 1 /* convolutions of another horizontal stride than 1 */
#define MB_HAS_TABLE 1  /* activations that are tables */
#define MB_HAS_SUM 1    /* additions and rescaling */
#define MB_HAS_THEN_SUM 1
#define MB_HAS_THEN_POOL 1
#define MB_HAS_POOL 1
#define MB_HAS_MEAN 1

#endif
