"""Nothing is deleted or overwritten that we did not write."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import minfer
from draws import few
from minfer import RefusedError, SettingsError
from minfer.batch import RunModels, run
from minfer.batch.rules import infer_rules
from minfer.errors import MinferError
from minfer.io.owned import BOOK, Owned
from minfer.parsing import Recipe
from minfer.parsing.stream import parse_file
from minfer.parsing.training import train_file
from minfer_experiments.pages import Made
from minfer_experiments.results import Results
from processes import everything
from refused import refused
from sources import parsed

PACKAGE = Path(minfer.__file__).parent

#: The home of removing and replacing files.
HOME = {
    "io/text.py": "atomic_write: files that a user names",
    "io/owned.py": "files whose names we make up",
    "kernels/compiling/trust.py": "the kernel cache, which knows nothing of the rest of it",
}
#: All others that remove, rename or overwrite anything, and why that is no user's file.
ELSEWHERE = {
    ("queries/map/toulbar.py", "path.write_text"): "in a temporary folder of its own",
    ("batch/folder.py", "os.makedirs"): "folders of pictures; nothing is replaced",
    ("cli/failures.py", "os.open"): "the null device",
    ("images/denoise_result.py", "np.save"): "to memory",
    ("learn/save.py", "np.savez"): "to memory",
    ("parsing/model.py", "require_safetensors().save"): "to memory",
    ("rules/tables.py", "os.symlink"): "in a temporary folder of its own",
    ("rules/tables.py", "shutil.rmtree"): "that folder, which holds links only",
    ("pictures.py", "figure.savefig"): "to a file of atomic_write",
}
REMOVE = {"unlink", "rmdir", "removedirs", "rmtree", "rename", "renames", "truncate", "move"}
REPLACE = {
    "write_text", "write_bytes", "copy2", "copyfile", "copytree", "symlink", "symlink_to", "link",
    "hardlink_to", "savefig", "save", "savez", "savez_compressed", "savetxt", "tofile", "to_csv",
    "to_parquet", "to_json", "touch", "to_pickle", "mkstemp", "NamedTemporaryFile", "makedirs",
}  # fmt: skip
NAMES = {*REMOVE, *REPLACE, "remove", "replace", "copy", "chmod", "open"}
WORDS = re.compile(rf"\b({'|'.join(NAMES)})\b")
# .save of a class of this package
OURS = {"self", "parser", "net", "model", "plan", "kept", "crf", "circuit"}


def writers(tree: ast.AST) -> Iterator[str]:
    """Calls that can remove, rename or overwrite a file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        called = ast.unparse(node.func) if name in NAMES else ""
        owner = called.rpartition(".")[0]
        if (
            (owner and name in REMOVE | REPLACE and not is_ours(node, owner, name))
            or (owner in ("os", "shutil") and name in ("remove", "replace", "copy", "chmod"))
            or (owner and name == "replace" and len(node.args) == 1 and not node.keywords)
            or (name == "open" and writes(node, owner))
        ):
            yield called
        for inner in [*node.args, *(word.value for word in node.keywords)]:  # act(os.unlink, ...)
            if isinstance(inner, ast.Attribute) and inner.attr in REMOVE:
                text = ast.unparse(inner)
                if text.startswith(("os.", "shutil.")):
                    yield text


def is_ours(node: ast.Call, owner: str, name: str) -> bool:
    """``parser.save``, which ends in a writer of this list; images are saved to open files."""
    to_file = [ast.unparse(argument) for argument in node.args[:1]] == ["file"]
    return name == "save" and (owner.rpartition(".")[2] in OURS or to_file)


def writes(node: ast.Call, owner: str) -> bool:
    """Whether an ``open`` opens for writing."""
    if owner == "os":
        return "O_RDONLY" not in ast.unparse(node)
    modes = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
    if owner in ("", "io", "gzip", "bz2", "lzma") and not isinstance(
        [*modes[1:], ast.Constant("r")][0], ast.Constant
    ):
        return True  # in a mode that is not said here
    texts = [a.value for a in modes if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return any(set(text) <= set("rwxabt+") and set(text) & set("wxa+") for text in texts)


def test_every_writer_is_known():
    """A new one belongs into the home; if it must be elsewhere, here is the place to say why."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), called)
        for path in PACKAGE.rglob("*.py")
        if WORDS.search(path.read_text("utf-8"))
        for called in writers(parsed(path))
    }
    outside = {(file, called) for file, called in found if file not in HOME}
    allowed = {*ELSEWHERE, *REMOVERS}
    assert outside - allowed == set(), "removes or overwrites outside minfer.io.owned"
    assert allowed - outside == set(), "gone: take it from the list"
    assert {file for file, _ in found} >= {*HOME}


#: Removals by the home's own function, each of a file that its book or its head names.
REMOVERS = {
    ("batch/folder.py", "os.unlink"): "files of the manifest, through owned.act",
    ("batch/folder.py", "os.rmdir"): "their folders, if they are empty",
}


def stays(before: dict[str, Any], folder: Path) -> None:
    after = everything(folder)
    assert {name: after.get(name) for name in before} == before


@pytest.fixture
def infer() -> Callable[..., Any]:
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    from minfer import BeliefPropagation, Rules

    def infer(folder: Path, n: int = 6, parts: int = 3) -> Any:
        people = [f"p{k}" for k in range(n)]
        program = Rules().open("s", people, log_odds=0.5).open("t", people)
        program.rule("1: s(x) => t(x)")
        solver = BeliefPropagation(tol=1e-9)
        return infer_rules(program, solver=solver, workers=1, parts=parts, folder=folder)

    return infer


def test_model_files_of_the_user_are_left_alone(infer, tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    for name in ("2024.minfer", "000009.minfer", "my.minfer", "notes.txt", "rows.jsonl"):
        (models / name).write_text("mine")
    before = everything(tmp_path)
    answer = infer(tmp_path)
    stays(before, tmp_path)
    assert len(answer.probabilities) == 12
    assert infer(tmp_path).probabilities.tolist() == answer.probabilities.tolist()
    stays(before, tmp_path)


@pytest.mark.parametrize("how", ["file", "link", "folder is a link", "book", "book is a link"])
def test_what_is_in_the_way_is_refused(infer, tmp_path, how):
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / "models").mkdir(parents=True)
    outside.mkdir()
    (outside / "000000.minfer").write_text("mine")
    if how == "file":
        (folder / "models" / "000000.minfer").write_text("mine")
    elif how == "link":
        (folder / "models" / "000000.minfer").symlink_to(outside / "000000.minfer")
    elif how == "folder is a link":
        (folder / "models").rmdir()
        (folder / "models").symlink_to(outside)
    elif how == "book":
        (folder / "minfer-files.jsonl").write_text('{"mine": 1}\n')
    else:
        (folder / "minfer-files.jsonl").symlink_to(outside / "000000.minfer")
    before = everything(tmp_path)
    with pytest.raises((RefusedError, MinferError)):
        infer(folder)
    stays(before, tmp_path)
    assert {k for k in everything(tmp_path) if "models/" in k} == {
        k for k in before if "models/" in k
    }


def test_our_own_models_are_replaced_and_removed(infer, tmp_path):
    infer(tmp_path, parts=3)
    (tmp_path / "models" / "000007.minfer").write_text("mine")
    shutil.rmtree(tmp_path / "answers")
    infer(tmp_path, n=8, parts=2)
    names = sorted(path.name for path in (tmp_path / "models").iterdir())
    assert names == ["000000.minfer", "000001.minfer", "000007.minfer"]
    edited = tmp_path / "models" / "000001.minfer"
    edited.write_text("mine by now")
    shutil.rmtree(tmp_path / "answers")
    refused(RefusedError, "000001", infer, tmp_path, n=6, parts=2)
    assert edited.read_text() == "mine by now"
    infer_one = everything(tmp_path)
    refused(RefusedError, "", infer, tmp_path, n=6, parts=3)
    stays({k: v for k, v in infer_one.items() if k.endswith("000001.minfer")}, tmp_path)


def test_a_file_that_was_noted_and_never_written_is_the_users(tmp_path):
    """A kill may fall between the book and the file."""
    Owned(tmp_path).write("a/x", b"one")
    (tmp_path / "a" / "x").unlink()
    (tmp_path / "a" / "x").write_text("mine")
    own = Owned(tmp_path)
    for act in (lambda: own.write("a/x", b"two"), lambda: own.check("a/x")):
        refused(RefusedError, "move it away", act)
    own.keep_only("a", [])
    assert (tmp_path / "a" / "x").read_text() == "mine"


@pytest.mark.drawn
def test_a_book_that_was_cut_off(tmp_path):
    Owned(tmp_path).write("x", b"one")
    whole = (tmp_path / BOOK).read_bytes()
    for size in few(range(len(whole)), 15):
        (tmp_path / BOOK).write_bytes(whole[:size])
        own = Owned(tmp_path)
        if size < len(whole):
            refused(RefusedError, "", own.write, "x", b"two")
        assert (tmp_path / "x").read_bytes() == b"one"
        own.write("y", b"three")  # and it goes on
        Owned(tmp_path).write("y", b"four")
        (tmp_path / "y").unlink()


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", ""])
def test_a_crafted_book_names_nothing_outside(tmp_path, name):
    (tmp_path / "x").write_text("mine")
    folder = tmp_path / "folder"
    Owned(folder).write("ours", b"1")
    with open(folder / BOOK, "a") as book:
        sha = "0cd2b2ad9c54a1ad5c0e23d97e5b0a5e1b2e9ce8a9d4dc4cf3f0d1e0bdd3c3b0"
        book.write(json.dumps({"name": name, "sha256": sha}) + "\n")
    refused(RefusedError, "", lambda: Owned(folder).keep_only("a", []))
    assert (tmp_path / "x").read_text() == "mine"


@pytest.fixture(scope="module")
def treebank(tmp_path_factory) -> Path:
    pytest.importorskip("safetensors")
    path = tmp_path_factory.mktemp("bank") / "bank.conllu"
    rows = ["1\tIt\tit\tPRON\tP\t_\t2\tnsubj\t_\t_", "2\truns\trun\tVERB\tV\t_\t0\troot\t_\t_"]
    path.write_text(("\n".join(rows) + "\n\n") * 4)
    return path


def train(source: Path, out: Path, **settings: Any) -> Any:
    recipe = Recipe(first_epochs=1, epochs=1, bits=8, tag_bits=8)
    return train_file(str(source), str(out), recipe=recipe, **settings)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("how", ["the input", "a link to it", "dev", "a hard link"])
def test_training_does_not_remove_its_input(treebank, tmp_path, how, fresh):
    place = tmp_path / "X.checkpoint"
    source, dev = place, None
    if how == "the input":
        shutil.copy(treebank, place)
    elif how == "dev":
        source, dev = treebank, str(place)
        shutil.copy(treebank, place)
    else:
        source = tmp_path / "bank.conllu"
        shutil.copy(treebank, source)
        (place.symlink_to if how == "a link to it" else place.hardlink_to)(source)
    before = everything(tmp_path)
    refused(SettingsError, "input", train, source, tmp_path / "X", dev=dev, fresh=fresh)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("what", ["text", "empty", "a link", "a parser", "a folder", "nearly"])
def test_training_removes_only_checkpoints(treebank, tmp_path, what):
    place = tmp_path / "X.checkpoint"
    if what == "text":
        place.write_text("my notes about minfer_parser_checkpoint")
    elif what == "empty":
        place.touch()
    elif what == "a link":
        (tmp_path / "aside").write_text("mine")
        place.symlink_to(tmp_path / "aside")
    elif what == "a parser":
        train(treebank, place)
    elif what == "nearly":
        head = json.dumps({"minfer_parser_checkpoint": 1}).encode()
        place.write_bytes(len(head).to_bytes(8, "little") + head)
    else:
        place.mkdir()
    before = everything(tmp_path)
    for fresh in (True, False):
        refused(MinferError, "", train, treebank, tmp_path / "X", fresh=fresh)
        assert everything(tmp_path) == before


def test_a_damaged_checkpoint_of_ours_goes_with_fresh(treebank, tmp_path):
    place = tmp_path / "X.checkpoint"

    def stop(progress: Any) -> None:
        if progress.stage == "pairs":
            raise KeyboardInterrupt

    refused(KeyboardInterrupt, "", train, treebank, tmp_path / "X", report=stop)
    assert place.exists()
    place.write_bytes(place.read_bytes()[:-100])
    refused(MinferError, "fresh", train, treebank, tmp_path / "X")
    train(treebank, tmp_path / "X", fresh=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["X"]


def test_an_output_is_not_an_input(treebank, tmp_path):
    source = tmp_path / "bank.conllu"
    shutil.copy(treebank, source)
    train(source, tmp_path / "X")
    (tmp_path / "link").symlink_to(source)
    before = everything(tmp_path)
    for call in (
        lambda: train(source, tmp_path / "link"),
        lambda: train(treebank, tmp_path / "link", dev=str(source)),
        lambda: parse_file(tmp_path / "X", source, tmp_path / "link"),
        lambda: parse_file(tmp_path / "X", source, tmp_path / "X"),
    ):
        refused(SettingsError, "input", call)
    assert everything(tmp_path) == before


def test_the_papers_files_replace_only_their_own(tmp_path):
    def made(text: str) -> Made:
        return Made(
            [{"a": text}], text, [], "5.1", lambda path: Path(path).write_text(text) and None
        )

    (tmp_path / "fig1.md").write_text("my notes")
    refused(RefusedError, r"fig1\.md", lambda: list(made("one").write(str(tmp_path / "fig1"))))
    assert (tmp_path / "fig1.md").read_text() == "my notes"
    (tmp_path / "fig1.md").unlink()
    for text in ("one", "two"):
        names = [Path(path).name for path in made(text).write(str(tmp_path / "fig1"))]
        assert names == ["fig1.csv", "fig1.md", "fig1.png"]
        page = (tmp_path / "fig1.md").read_text()
        assert re.fullmatch(rf"{text}\n\nMeasured: \d{{4}}-\d\d-\d\d, .+\.\n", page)


def test_results_use_no_name_of_others(tmp_path):
    (tmp_path / "x.tmp").write_text("mine")
    Results(tmp_path / "x.json").keep("a", 1, stamp={})
    assert (tmp_path / "x.tmp").read_text() == "mine"
    assert json.loads((tmp_path / "x.json").read_text())["a"] == 1


@pytest.mark.parametrize("name", [".minfer-notes.tmp", ".minfer-0123456789abcdef.tmp"])
def test_a_batch_takes_no_file_for_half_of_its_own(tmp_path, name):
    """In a folder that holds no run."""
    pytest.importorskip("pyarrow")

    minfer.write(minfer.FactorGraph.pairwise([0.5], [], []), tmp_path / "m.minfer")
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    refused(RefusedError, "other files", run, RunModels(), [tmp_path / "m.minfer"], out, workers=1)
    assert (out / name).read_text() == "mine"


def test_a_batch_that_was_killed_while_it_wrote_its_plan_goes_on(tmp_path):
    pytest.importorskip("pyarrow")

    minfer.write(minfer.FactorGraph.pairwise([0.5], [], []), tmp_path / "m.minfer")
    for k, text in enumerate(("", '{"set', '{"settings": {"job"')):
        out = tmp_path / str(k)
        out.mkdir()
        (out / ".minfer-0123456789abcdef.tmp").write_text(text)
        assert run(RunModels(), [tmp_path / "m.minfer"], out, workers=1).done == 1
        assert not list(out.glob("*.tmp"))
