"""From Python's keywords to a command's options: errors and notes of the library speak to a Python caller."""

import re
from collections.abc import Collection, Mapping

_CALL = r"[\w.]*\w\([^()]*\)"  # code, such as np.unique(y, return_inverse=True): its keywords stay
_VALUE = r"'([^']*)'|([\w.%/*-]*\w%?|\.\.\.)"


def in_options(text: str, options: Mapping[str, str], about: Collection[str] = ()) -> str:
    """`text` with the option that a command has for each keyword. `options` maps the one to the other.

    A keyword is a word before an equals sign, or one with an underscore. Of `about`, what an error is about, it is also
    one that begins the text, or that the text says to leave out: elsewhere such a word may be plain English. So it may
    be outside of a list in parentheses.

    >>> there = {"ram": "--ram", "run_dir": "--run-dir", "dense": "--no-dense", "prefer": "--prefer"}
    >>> in_options("ram=2: give ram='2 KB', or a run_dir", there)
    '--ram 2: give --ram "2 KB", or a --run-dir'
    >>> in_options("leave out dense=False, or f(ram=2)", there)
    'leave out --no-dense, or f(ram=2)'
    >>> in_options("ram and prefer do not go together: leave prefer out", there, ["ram", "prefer"])
    '--ram and --prefer do not go together: leave --prefer out'
    """
    if not options:
        return text
    known = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    pattern = re.compile(
        rf"{_CALL}|(?<![\w.=-])({known})=(?:{_VALUE})?(?![\w(=])|(?<![\w./=-])({known})\b(?![=(./-])"
    )

    def replaced(found: re.Match[str]) -> str:
        keyword, quoted, plain, bare = found.groups()
        if bare is not None:
            return options[bare] if "_" in bare else bare
        if keyword is None:
            return found[0]
        option = options[keyword]
        if option.startswith("--no-"):
            return option if plain in ("False", None) else option.replace("--no-", "--", 1)
        if not option.startswith("--"):
            return found[0]
        if quoted is not None:
            return f'{option} "{quoted}"' if " " in quoted or not quoted else f"{option} {quoted}"
        return option if plain in (None, "True", "") else f"{option} {plain}"

    listed = re.sub(
        rf"\((?:{known})(?:, (?:{known}))+\)",
        lambda found: re.sub(r"\w+", lambda w: options[w[0]], found[0]),
        text,
    )
    named = [name for name in about if options.get(name, "").startswith("--")]
    return pattern.sub(replaced, _mark_bare(listed, {name: options[name] for name in named}))


def _mark_bare(text: str, options: Mapping[str, str]) -> str:
    """Where a message begins with the names that it is about, or says to leave one out, or what one was.

    >>> _mark_bare("run belongs to another run: lr was 0.01, and is not given now", {"lr": "--lr"})
    'run belongs to another run: --lr was 0.01, and is not given now'
    >>> _mark_bare("run belongs to another run: dense was true, and is false now", {"dense": "--no-dense"})
    'run belongs to another run: --no-dense was not given, and is given now'
    """
    if not options:
        return text
    name = rf"(?:{'|'.join(map(re.escape, options))})"
    end = r"(?![\w=(./-])"

    def replaced(found: re.Match[str]) -> str:
        return re.sub(rf"\b{name}{end}", lambda word: options[word[0]], found[0])

    given = {"true": "not given", "false": "given"}  # of an option that turns something off
    off = "|".join(re.escape(each) for each, option in options.items() if option.startswith("--no-"))
    if off:
        text = re.sub(
            rf"(?<=[:;] )({off}) was (true|false), and is (true|false) now",
            lambda w: f"{options[w[1]]} was {given[w[2]]}, and is {given[w[3]]} now",
            text,
        )
    was = {each for each, option in options.items() if not option.startswith("--no-")}  # which has no value

    text = re.sub(rf"^{name}{end}(?:(?:, | and | or ){name}{end})*", replaced, text)
    text = re.sub(r"(?<=[:;] )(\w+)(?= was )", lambda w: options[w[0]] if w[0] in was else w[0], text)
    text = re.sub(rf"\bleave (?:out )?{name}{end}(?:(?:, | and | or ){name}{end})*", replaced, text)
    before = "got|go with|goes with|give|combined with"
    return re.sub(rf"\b(?:{before}) {name}{end}(?:(?:, | and | or ){name}{end})*", replaced, text)
