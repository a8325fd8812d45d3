"""Which names may begin all that an export has: none that a standard header, a macro or a build tool has a use for."""

import re

# A folder with string.h on the include path hides the header of that name from every other file. Of C, C++ and POSIX.
HEADERS = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbit
stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
aio alloca arduino cpio dirent dlfcn elf endian fcntl features fmtmsg fnmatch ftw getopt glob grp iconv langinfo libgen
malloc memory monetary ndbm netdb nl_types poll pthread pwd regex sched search semaphore spawn strings stropts syslog
tar termios ulimit unistd utime utmp utmpx wait wordexp
"""
# Compilers and headers of systems define these, in lower case: what they stand for, not the name, would be compiled.
MACROS = (
    "arm avr far hpux i386 interface linux m68k mips near pascal pic riscv small sparc sun unix vax vector"
)
# CMake has targets of these names.
TARGETS = "all clean edit_cache help install package package_source preinstall rebuild_cache test"
# INT8_WIDTH and its like are macros of <stdint.h> and <limits.h> in C23.
WIDTHS = re.compile(
    r"u?int((_least|_fast)?\d+|max|ptr)?|(ptrdiff|size|wchar|wint|sig_atomic)|u?(schar|char|shrt|long|llong)"
)


def say_taken(prefix: str) -> str | None:
    """What else has this name, if anything.

    >>> say_taken("stdint"), say_taken("linux"), say_taken("kws")
    ('stdint.h would hide a header that other files include', 'compilers define a macro of that name', None)
    >>> say_taken("test"), say_taken("int8"), say_taken("membound_micro")
    ('CMake has a target of that name', 'C has a macro INT8_WIDTH', 'the runtime has files of that name')
    """
    if prefix in HEADERS.split():
        return f"{prefix}.h would hide a header that other files include"
    if prefix in MACROS.split():
        return "compilers define a macro of that name"
    if prefix in TARGETS.split():
        return "CMake has a target of that name"
    if WIDTHS.fullmatch(prefix):
        return f"C has a macro {prefix.upper()}_WIDTH"
    if prefix.startswith("membound_micro"):
        return "the runtime has files of that name"
    return None
