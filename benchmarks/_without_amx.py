"""Run a command whose processes get no AMX from the kernel: libraries fall back to VNNI, as on CPUs without it.

    python benchmarks/_without_amx.py python benchmarks/deployment.py --out results/deployment-x86.json

AMX must be asked for, by arch_prctl(ARCH_REQ_XCOMP_PERM); a filter of system calls, which children inherit, refuses it.
"""

import ctypes
import os
import platform
import struct
import sys

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2  # of prctl
ARCH_PRCTL, GET_PERMISSION, ASK_PERMISSION, TILE_DATA = 158, 0x1022, 0x1023, 18
X86_64, NOT_SUPPORTED = 0xC000003E, 95
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # of classic BPF
REFUSE, ALLOW = 0x00050000 | NOT_SUPPORTED, 0x7FFF0000
# Each: what to do, how many to skip if equal, if not, and with which number. Loads are of the call's record.
RULES = (
    (LOAD, 0, 0, 4), (EQUAL, 0, 6, X86_64),
    (LOAD, 0, 0, 0), (EQUAL, 0, 4, ARCH_PRCTL),
    (LOAD, 0, 0, 16), (EQUAL, 1, 0, ASK_PERMISSION), (EQUAL, 0, 1, GET_PERMISSION),
    (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW),
)  # fmt: skip


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("give the command to run")
    if platform.machine() != "x86_64":
        sys.exit(f"this is {platform.machine()}, which has no AMX: run the command by itself")
    libc = ctypes.CDLL(None, use_errno=True)
    rules = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in RULES))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(RULES), ctypes.addressof(rules)))
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SET_SECCOMP, FILTER, program, 0, 0):
        sys.exit(f"the filter is refused: {os.strerror(ctypes.get_errno())}")
    if libc.syscall(ARCH_PRCTL, ASK_PERMISSION, TILE_DATA) == 0:
        sys.exit("AMX is still given")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
