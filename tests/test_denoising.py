"""Pictures in, pictures out: the model of section 5.1, its tool, picture files; depth of two."""

from __future__ import annotations

import json
import os
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draws
from minfer import (
    BeliefPropagation,
    Exact,
    FormatError,
    MinDivergence,
    MinferError,
    MinJoint,
    ModelError,
    RefusedError,
    SettingsError,
)
from minfer.images.class_estimate import k_means
from minfer.images.denoising import (
    denoise,
    grey_values,
    noise_deviation,
    picture_model,
)
from minfer.images.noise_estimate import sample, two_means
from minfer.pictures import (
    MARK,
    base_pictures,
    flipped,
    gaussian,
    night,
    read_picture,
    text_page,
    write_marked,
    write_picture,
)
from minfer.reduction.recipes import Compensated
from minfer.stereo import MOST, depth, scene, stereo_model
from minfer_experiments.fig1 import collection
from refused import all_refused, refused


def noisy(name="house", side=32, sigma=0.3, rng=0):
    clean = base_pictures(side)[name]
    return gaussian(clean, sigma, np.random.default_rng(rng)), clean


@pytest.mark.parametrize("means", [None, [0.1, 0.4, 0.9]])
def test_the_model_is_the_papers(means):
    """log p(y) = coupling * sum [y_i = y_j] + alpha * sum x_i y_i, written out.

    Of several classes each is scored by its distance: - alpha / 2 * sum (x_i - means[y_i])^2.
    """
    x = np.random.default_rng(0).normal(size=(3, 4))
    options = {"level": x.mean()} if means is None else {"means": means}
    graph, used = picture_model(x, alpha=3.0, coupling=0.7, **options)
    assert means is not None or used is None
    for y in np.random.default_rng(1).integers(0, len(means or [0, 1]), (20, 3, 4)):
        equal = (y[:, 1:] == y[:, :-1]).sum() + (y[1:] == y[:-1]).sum()
        two = 3.0 * ((x - x.mean()) * y).sum()
        own = two if means is None else -1.5 * ((x - np.array(means)[y]) ** 2).sum()
        assert graph.log_score(y.ravel()) == pytest.approx(0.7 * equal + own)


def test_the_answer_is_that_of_full_inference():
    x, _ = noisy()
    full = BeliefPropagation(tol=1e-8)(picture_model(x)[0])
    reduced = denoise(x, objective=MinJoint(0.03))
    assert 0 < reduced.result.kept_share < 1
    assert np.abs(reduced.result.marginals.probs - full.probs).mean() < 1e-3
    for everything in (denoise(x), denoise(x, objective=MinJoint(0.0))):
        assert everything.result.n_ignored == 0
        assert everything.result.n_forced == 0
        assert everything.kept.min() == 1.0
        np.testing.assert_allclose(everything.result.marginals.probs, full.probs, atol=1e-3)


def test_kept_counts_each_pixels_factors():
    x, _ = noisy("letter", 16)
    found = denoise(x, objective=MinDivergence(100))
    kept = np.zeros(16 * 16)
    degree = np.zeros(16 * 16)
    model = found.result.model
    for i in range(256, model.n_factors):
        for v in model.scope(i):
            degree[v] += 1
            kept[v] += found.result.keep[i]
    np.testing.assert_allclose(found.kept.ravel(), kept / degree)


def test_segmenting():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 12)[None, :].repeat(30, axis=0)
    x = np.array([0.1, 0.5, 0.9])[truth] + 0.12 * rng.standard_normal(truth.shape)
    found = denoise(x, labels=3)
    np.testing.assert_allclose(found.means, [0.1, 0.5, 0.9], atol=0.05)
    assert (found.labels == truth).mean() > 0.97
    assert found.marginals.shape == (30, 36, 3)
    np.testing.assert_array_equal(found.clean, found.means[found.labels])
    assert "3 labels" in repr(found)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (2, 2), (3, 50)])
def test_any_size(shape):
    x = np.random.default_rng(0).random(shape)
    for options in ({"level": 0.5}, {"means": [0.0, 0.5, 1.0]}):
        found = denoise(x, **options)
        assert found.clean.shape == found.kept.shape == shape
        exact = Exact()(picture_model(x, **options)[0])
        assert np.abs(found.result.marginals.probs - exact.probs).mean() < 0.03


def unbalanced(kind, side=160):
    if kind == "night":
        return night(side)
    pytest.importorskip("PIL.Image")
    return text_page(side, side, scale=int(kind[-1]))


@pytest.mark.parametrize("kind", ["text 2", "night"])
def test_the_negative_has_the_same_answer(kind):
    clean = unbalanced(kind, 80)
    for x in (
        flipped(clean, 0.1, np.random.default_rng(2)).astype(float),
        gaussian(clean, 0.3, np.random.default_rng(2)),
    ):
        a, b = denoise(x), denoise(1 - x)
        assert a.shades.told
        assert a.shades.level + b.shades.level == pytest.approx(1.0)
        assert a.shades.alpha == pytest.approx(b.shades.alpha)
        assert (a.clean != b.clean).mean() > 0.999


@cache
def flipped_night():
    """A picture with a tenth of its pixels flipped, and what it is taken for."""
    x = flipped(night(96), 0.1, np.random.default_rng(3))
    return x, denoise(x)


@pytest.mark.parametrize(("dark", "light"), [(0.0, 1.0), (0.1, 0.3), (-40.0, 210.0)])
def test_any_two_shades(dark, light):
    """Scale and offset of the grey values make no difference."""
    clean = night(96)
    x, plain = flipped_night()
    found = denoise(dark + (light - dark) * x)
    np.testing.assert_array_equal(found.clean, plain.clean)
    assert found.shades.alpha * (light - dark) == pytest.approx(plain.shades.alpha)
    assert found.shades.level == pytest.approx(dark + (light - dark) * plain.shades.level)
    grey = gaussian(clean, 0.25, np.random.default_rng(3))
    found = denoise(dark + (light - dark) * grey)
    assert found.shades.dark == pytest.approx(dark, abs=0.1 * (light - dark))
    assert found.shades.light == pytest.approx(light, abs=0.1 * (light - dark))
    assert (found.clean != clean).mean() < 0.01


def test_a_rare_shade_is_found_under_normal_noise():
    """Two classes of least variance would split the noise of the common one."""
    clean = np.zeros((120, 120), dtype=bool)
    clean[50:62, 50:62] = True  # 1 %
    x = gaussian(clean, 0.3, np.random.default_rng(0))
    assert two_means(x)[1] < 0.5
    found = denoise(x)
    assert found.shades.level == pytest.approx(0.5, abs=0.2)
    assert (found.clean != clean).sum() < 20


def test_what_is_given_stays_and_so_do_clean_pictures():
    x, _ = noisy()
    found = denoise(x, alpha=3.0)
    assert found.shades.alpha == 3.0
    assert found.shades.told
    found = denoise(x, level=0.4)
    assert found.shades.level == 0.4
    both = denoise(x, alpha=3.0, level=0.4).shades
    assert (both.alpha, both.level) == (3.0, 0.4)
    assert denoise(x, labels=2).shades is None
    assert denoise(x, coupling=0.0).shades.level == pytest.approx(0.5, abs=0.1)
    assert denoise(x, alpha=0.0).shades.alpha == 0.0
    for clean in (*base_pictures().values(), unbalanced("text 2")):
        found = denoise(clean)
        np.testing.assert_array_equal(found.clean, clean)
        assert found.shades.alpha > 5
    fine = unbalanced("text 1")  # has dots of one pixel, which could be noise
    assert (denoise(fine).clean != fine).mean() < 0.001


def test_pictures_that_tell_nothing():
    """One grey, one pixel, two pixels, pure noise: an error, or a guess that says so."""
    for image in (np.full((5, 5), 0.3), [[1]], np.zeros((1, 9), dtype=np.uint16)):
        refused(ModelError, "two shades", denoise, image)
        found = denoise(image, level=0.5)
        assert not found.shades.told
        assert (found.clean == (np.asarray(image) > 0.5)).all()
    rng = np.random.default_rng(0)
    for image in ([[0, 1]], [[0.2], [0.3]], rng.random((30, 30)), rng.normal(size=(200, 200))):
        found = denoise(image)
        assert not found.shades.told
        x = np.asarray(image, dtype=float)
        assert x.min() < found.shades.level < x.max()
    single = np.zeros((20, 20))
    single[7, 9] = 1
    assert denoise(single).clean.sum() <= 1


def test_a_large_picture_is_judged_by_tiles():
    seen, counted = sample(np.zeros((288, 384)))
    assert counted.shape == seen.shape
    assert 0.8 < counted.mean() < 1
    for shape in ((1, 100_000), (100_000, 1), (3, 40_000), (70, 1000), (257, 257)):
        seen, counted = sample(np.zeros(shape))
        assert 2**14 < seen.size <= 2**16
        assert counted.any()


def test_kinds_of_numbers():
    x, _ = noisy()
    grey = np.clip(np.round(x * 255), 0, 255)
    bw = x > 0.5
    same = [grey.astype(np.uint8), (grey * 257).astype(np.uint16), grey / 255]
    for image in same:
        np.testing.assert_allclose(grey_values(image), grey / 255, atol=1e-12)
    for image in (bw, bw.astype(np.uint8), bw.astype(int), bw.tolist()):
        np.testing.assert_array_equal(grey_values(image), bw)


@pytest.mark.parametrize(
    ("image", "match"),
    [
        (np.zeros((0, 4)), "empty"),
        (np.zeros(4), r"shape \(H, W\)"),
        (np.zeros((4, 4, 3)), "3 channels"),
        (np.array([[0.0, np.nan]]), r"pixel \(0, 1\) is nan"),
        (np.array([["a", "b"]]), "numbers or bools"),
        (np.full((3, 3), 0.7), "same value"),
        ("noisy.png", "read_picture"),
    ],
)
def test_what_is_no_picture_is_refused(image, match):
    if match == "same value":
        refused(ModelError, match, denoise, image, labels=4, smooth="linear")
    refused(ModelError, match, denoise, image)


GREY = np.add.outer(np.linspace(0, 0.5, 12), np.linspace(0, 0.5, 12))
SMOOTH = {"labels": 4, "smooth": "linear"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"coupling": np.inf}, "coupling"),
        ({"level": 128}, "level"),
        ({"solver": "bp"}, "solver"),
        ({"labels": 10_000}, ""),
        ({"means": [0.5, 0.5]}, ""),
        ({"means": [0.0, 1.0], "labels": 2}, ""),
        ({"means": [0.0, 1.0], "level": 0.5}, ""),
        ({"refreshes": -1}, ""),
        ({"recipe": "paper", "objective": MinJoint(0.1)}, ""),
        ({"recipe": Compensated()}, "objective"),
        ({"certify": 0.0}, "certify"),
        ({"smooth": "linear"}, "labels=64"),
        ({"means": [0.0, 0.2, 1.0], "smooth": "linear"}, "evenly spread"),
        ({"labels": 4, "smooth": "cubic"}, "smooth must be"),
        ({**SMOOTH, "alpha": 0.0}, "alpha above 0"),
        ({**SMOOTH, "truncation": 0.0}, "truncation must be above 0"),
        ({"truncation": 3.0}, r'truncation .* smooth="linear"'),
    ],
)
def test_settings_are_checked(options, words):
    refused(SettingsError, words, denoise, GREY, **options)


@given(st.lists(st.floats(-5, 5), min_size=6, max_size=40, unique=True), st.integers(2, 5))
@settings(max_examples=draws(60))
def test_class_means_are_a_fixed_point_of_k_means(values, k):
    x = np.array(values)[None, :]
    means = np.sort(k_means(x.reshape(-1, 1), k)[:, 0])
    assert means.shape == (k,)
    nearest = np.abs(x.ravel()[:, None] - means).argmin(axis=1)
    for label in np.unique(nearest):
        assert x.ravel()[nearest == label].mean() == pytest.approx(means[label], abs=1e-9)


def test_pictures_and_noise_are_fixed(pil):
    """The same at every call; some mostly paper, some mostly dark."""
    pictures = base_pictures()
    assert len(pictures) == 4
    for name, picture in pictures.items():
        assert picture.shape == (64, 64), name
        assert 0.15 < picture.mean() < 0.6, name
    a, b = collection(versions=2), collection(versions=3)
    assert len(a.noisy) == len(a.clean) == 8
    np.testing.assert_array_equal(a.noisy[3], b.noisy[4], "the second version of picture 1")
    assert np.std(a.noisy[0] - a.clean[0]) == pytest.approx(0.3, rel=0.05)
    refused(MinferError, "noise", collection, "salt")
    page = text_page(200, 240, 2)
    assert 0.75 < page.mean() < 0.95
    np.testing.assert_array_equal(page, text_page(200, 240, 2))
    assert 0.03 < night().mean() < 0.15
    np.testing.assert_array_equal(night(64), night(64))
    assert text_page(9, 5).shape == (9, 5)


@pytest.fixture
def pil():
    return pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif", ".gif"])
def test_files_come_back(suffix, tmp_path, pil):
    clean = base_pictures(32)["flower"]
    write_picture(tmp_path / f"a{suffix}", clean)
    np.testing.assert_array_equal(read_picture(tmp_path / f"a{suffix}").values, clean)
    values = np.random.default_rng(0).random((9, 7))
    if suffix in (".png", ".bmp"):
        write_picture(tmp_path / f"a{suffix}", values)
        found = read_picture(tmp_path / f"a{suffix}").values
        np.testing.assert_allclose(found, values, atol=1e-5 if suffix == ".png" else 2.1e-3)
    if suffix == ".tif":  # floats are stretched
        values = np.linspace(-3, 5, 12).reshape(3, 4).astype(np.float32)
        pil.fromarray(values).save(tmp_path / "a.tif")
        loaded = read_picture(tmp_path / "a.tif")
        np.testing.assert_allclose(loaded.values, (values + 3) / 8, atol=1e-6)
        assert loaded.notes
    write_marked(tmp_path / "m.png", [[True, False, True]], [[False, False, True]])
    seen = np.asarray(pil.open(tmp_path / "m.png"))
    np.testing.assert_array_equal(seen[0], [[255] * 3, [0] * 3, MARK])


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16", "CMYK"])
def test_every_mode_is_read(mode, tmp_path, pil):
    grey = (np.random.default_rng(0).random((9, 7)) > 0.5).astype(np.uint8) * 255
    image = pil.fromarray(grey)
    if mode == "I;16":
        image = pil.fromarray(grey.astype(np.uint16) * 257)
    elif mode != "L":
        image = image.convert(mode)
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    image.save(path)
    loaded = read_picture(path)
    np.testing.assert_allclose(loaded.values, grey / 255, atol=1e-9)
    assert all("transparent" not in note for note in loaded.notes)


def test_transparent_pixels_are_white_and_say_so(tmp_path, pil):
    grey = np.zeros((4, 4), dtype=np.uint8)
    alpha = np.where(np.arange(16).reshape(4, 4) < 4, 0, 255).astype(np.uint8)
    for name, bands in (("la", [grey, alpha]), ("rgba", [grey, grey, grey, alpha])):
        pil.fromarray(np.dstack(bands)).save(tmp_path / f"{name}.png")
        loaded = read_picture(tmp_path / f"{name}.png")
        np.testing.assert_array_equal(loaded.values, alpha == 0)
        assert any("over white" in note for note in loaded.notes)
    palette = pil.fromarray(np.dstack([grey, grey, grey])).convert("P")
    palette.save(tmp_path / "p.png", transparency=int(np.asarray(palette)[0, 0]))
    assert read_picture(tmp_path / "p.png").values.min() == 1.0


def test_bad_files(tmp_path, pil):
    (tmp_path / "text.png").write_text("no picture")
    refused(FormatError, r"text\.png", read_picture, tmp_path / "text.png")
    write_picture(tmp_path / "a.png", np.random.default_rng(0).random((60, 60)))
    (tmp_path / "half.png").write_bytes((tmp_path / "a.png").read_bytes()[:2000])
    refused(FormatError, "damaged", read_picture, tmp_path / "half.png")
    far = (2**56).to_bytes(8, "little")  # where a BigTIFF says that its directory is
    (tmp_path / "far.tiff").write_bytes(b"II+\0\x08\0\0\0" + far)
    refused(FormatError, r"far\.tiff", read_picture, tmp_path / "far.tiff")
    frames = [pil.fromarray(np.full((4, 4), v, np.uint8)) for v in (0, 255)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    refused(RefusedError, "2 frames", read_picture, tmp_path / "a.gif")
    refused(FileNotFoundError, "", read_picture, tmp_path / "none.png")
    refused(FormatError, "suffix", write_picture, tmp_path / "a.xyz", np.zeros((2, 2)))
    write_picture(tmp_path / "a.png", np.zeros((6, 7)), bits=8)
    data = (tmp_path / "a.png").read_bytes()
    header = b"IHDR" + (9000).to_bytes(4, "big") * 2 + data[24:29]
    crafted = data[:12] + header + zlib.crc32(header).to_bytes(4, "big") + data[33:]
    (tmp_path / "a.png").write_bytes(crafted)
    with pytest.raises(RefusedError, match=r"a\.png: 9,000 x 9,000 pixels in \d+ bytes"):
        read_picture(tmp_path / "a.png")


def test_without_pillow(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    refused(RefusedError, r"pip install 'minfer\[image\]'", read_picture, tmp_path / "a.png")


@pytest.fixture
def run(tmp_path, monkeypatch, pil):
    """A command, called in an empty folder with a noisy picture."""
    from typer.testing import CliRunner

    from minfer.cli import app

    monkeypatch.chdir(tmp_path)
    write_picture("noisy.png", np.clip((noisy()[0] + 0.5) / 2, 0, 1))

    def run(*words, code=0):
        answer = CliRunner().invoke(app, [str(word) for word in words])
        assert answer.exit_code == code, answer.output
        return answer

    return run


def test_command_writes_what_it_is_asked_for(run):
    words = ["--alpha", 10, "--marginals", "p.png", "--kept", "k.png", "--compare", "full"]
    answer = run("denoise", "noisy.png", "-o", "clean.png", *words)
    for text in ("32 x 32", "white", "kept", "ignored", "speed against it", "wrote clean.png"):
        assert text in answer.output
    clean = read_picture("clean.png").values
    assert (clean == noisy()[1]).mean() > 0.95
    np.testing.assert_array_equal(read_picture("p.png").values > 0.5, clean)
    assert 0 < read_picture("k.png").values.mean() < 1
    answer = run("denoise", "noisy.png", "-o", "clean.png")  # the whole model, unless asked
    assert answer.exit_code == 0, answer.output
    assert "0 ignored" in answer.output
    assert "divergence" not in answer.output
    words = ["--labels", 3, "--marginals", "p.npy", "--json", "--reduce"]
    answer = run("denoise", "noisy.png", *words)
    content = json.loads(next(line for line in answer.output.splitlines() if line[0] == "{"))
    assert len(content["picture"]["means"]) == 3
    assert 0 < content["reduction"]["kept_share"] <= 1
    assert np.load("p.npy").shape == (32, 32, 3)
    answer = run("denoise", "noisy.png", "--method", "paper", "--solver", "trw", "--strict")
    assert "the paper's" in answer.output
    assert "TreeReweighted" in answer.output


def test_certain_pixels_are_certain():
    """Strips that exact inference can do: every pixel that is called certain is right."""
    picture = noisy()[0][:9]
    found = denoise(picture, certify=20.0)
    assert found.certain.shape == (9, 32)
    model, _ = picture_model(picture, found.shades.alpha, level=found.shades.level)
    truth = Exact()(model).probs[1::2].reshape(9, 32)
    sure = found.certain >= 0
    assert sure.mean() > 0.99
    np.testing.assert_array_equal(found.certain[sure] == 1, truth[sure] > 0.5)
    reduced = denoise(picture, objective=MinJoint(0.03), certify=20.0)
    np.testing.assert_array_equal(reduced.certain >= 0, sure)
    assert denoise(picture).certain is denoise(picture).intervals is None
    classes = denoise(picture[:4, :12], labels=3, certify=20.0)
    truth = Exact()(classes.result.model).probs.reshape(4, 12, 3).argmax(axis=2)
    sure = classes.certain >= 0
    assert sure.any()
    np.testing.assert_array_equal(classes.certain[sure], truth[sure])


def slopes(noise=0.08, side=24):
    """A disc before a slope, both shaded: noisy, clean."""
    y, x = np.mgrid[0:side, 0:side] / side
    clean = np.where((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.1, 0.8 - 0.3 * x, 0.2 + 0.5 * y)
    return clean + noise * np.random.default_rng(0).normal(size=clean.shape), clean


@pytest.mark.parametrize("labels", [16, 64, 256])
@pytest.mark.parametrize("smooth", ["linear", "quadratic"])
def test_grey_values_are_smoothed(labels, smooth):
    seen, clean = slopes()
    found = denoise(seen, labels=labels, smooth=smooth)
    assert found.result.converged
    assert found.ordered
    assert np.sqrt(np.mean((found.clean - clean) ** 2)) < 0.6 * 0.08
    np.testing.assert_array_equal(found.clean, found.expected)
    np.testing.assert_allclose(found.expected, found.marginals @ found.means)
    p = found.marginals
    np.testing.assert_allclose(found.entropy, -(p * np.log(p + 1e-300)).sum(axis=2), atol=1e-12)
    assert denoise(seen, alpha=0.0, labels=4).result.converged  # neighbours alone


def test_smoothness_is_counted_in_deviations_of_the_noise():
    """The model as its docstring has it, pair by pair."""
    seen, _ = slopes(side=5)
    for smooth, power in (("linear", 1), ("quadratic", 2)):
        model, means = picture_model(
            seen, 150.0, 0.7, labels=9, smooth=smooth, truncation=2.5
        )  # fmt: skip
        steps = np.abs(means[:, None] - means) * np.sqrt(150.0)
        want = -0.7 * np.minimum(steps, 2.5) ** power
        np.testing.assert_allclose(model.log_table(25), want, rtol=1e-12, atol=1e-12)
    model, _ = picture_model(seen, 150.0, 0.7, labels=9)
    np.testing.assert_array_equal(model.log_table(25), 0.7 * np.eye(9))


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.3])
def test_the_deviation_of_the_noise_is_estimated(sigma):
    seen, _ = slopes(sigma, 96)
    assert noise_deviation(seen) == pytest.approx(sigma, rel=0.1)
    assert noise_deviation(np.arange(20.0).reshape(4, 5)) == pytest.approx(1e-3 * 19)
    assert noise_deviation(seen[:2]) > 0


def test_command_smooths_a_grey_picture(run):
    seen, clean = slopes()
    write_picture("grey.png", seen)
    words = ["--classes", 64, "--smooth", "linear", "--entropy", "e.png", "--expected", "x.npy"]
    answer = run("denoise", "grey.png", "-o", "clean.png", *words)
    assert "64 classes" in answer.output
    found = read_picture("clean.png").values
    assert np.sqrt(np.mean((found - clean) ** 2)) < 0.04
    np.testing.assert_allclose(np.load("x.npy"), found, atol=0.003)
    assert 0.1 < read_picture("e.png").values.mean() < 0.9
    run("denoise", "noisy.png", "-o", "c.png", "--labels", 3, "--intervals", 1)
    assert read_picture("c-certain.png").values.shape == (32, 32)


@pytest.mark.slow
def test_command_maps_certain_pixels(run, pil):
    answer = run("denoise", "noisy.png", "-o", "clean.png", "--intervals", 20)
    assert "pixels are decided" in answer.output
    assert "wrote clean-certain.png" in answer.output
    pixels = np.asarray(pil.open("clean-certain.png").convert("RGB")).astype(int)
    clean = read_picture("clean.png").values > 0.5
    sure = (pixels == pixels[..., :1]).all(axis=2)
    assert sure.mean() > 0.99
    np.testing.assert_array_equal(pixels[sure][:, 0] > 0, clean[sure])
    found = json.loads(run("denoise", "noisy.png", "--intervals", 20, "--json").stdout)
    assert found["intervals"]["certain"] == sure.sum()


def test_command_cleans_a_page_of_text(run):
    """The mean lies among the paper's greys there; as a level it doubles the errors."""
    page = text_page(160, 160)
    write_picture("page.png", flipped(page, 0.1, np.random.default_rng(0)))
    answer = run("denoise", "page.png", "-o", "clean.png")
    assert "told apart at level" in answer.output
    assert "guess" not in answer.output
    assert ((read_picture("clean.png").values > 0.5) != page).mean() < 0.05


def test_command_says_what_it_used_and_what_it_guessed(run):
    answer = run("denoise", "noisy.png", "--alpha", 7, "--json")
    content = json.loads(next(line for line in answer.output.splitlines() if line[0] == "{"))
    assert content["picture"]["alpha"] == 7
    assert 0.3 < content["picture"]["level"] < 0.7
    write_picture("noise.png", np.random.default_rng(0).random((20, 20)))
    assert "a guess: --level 0.5" in run("denoise", "noise.png").output
    answer = run("denoise", "noise.png", "--alpha", 5)
    assert "a guess: --level 0.5" in answer.output
    assert "--alpha" not in answer.output
    given = run("denoise", "noise.png", "--alpha", 5, "--level", 0.5)
    assert "guess" not in given.output
    assert "level 0.5 with alpha 5" in given.output


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("none.png", 3, "none.png"),
        ("noisy.png -o noisy.png", 2, "overwritten"),
        ("noisy.html --report noisy.html", 2, "noisy.html is also an input and would be overwri"),
        ("noisy.png -o a.png --reduce --kept a.png", 2, "same file"),
        ("noisy.png -o a.png --kept a-certain.png --reduce --intervals 3", 2, "same file"),
        ("noisy.png --kept a.png", 2, "--reduce"),
        ("noisy.png -o a.xyz", 3, "suffix"),
        ("noisy.png -o no/a.png", 2, "no folder"),
        ("noisy.png --means 0,x", 2, "list of numbers"),
        ("noisy.png --labels 8 --smooth linear --alpha 0", 2, "--alpha"),
        ("noisy.png --smooth linear --truncation 3", 2, "--labels 64"),
        ("noisy.png --method magic", 2, "--method"),
        ("noisy.png --refresh", 2, "--refresh"),
    ],
)
def test_command_says_what_is_wrong(run, words, code, text):
    Path("noisy.html").write_bytes(Path("noisy.png").read_bytes())
    before = Path("noisy.png").read_bytes()
    assert text in run("denoise", *words.split(), code=code).output
    assert Path("noisy.png").read_bytes() == Path("noisy.html").read_bytes() == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no full device")
def test_arrays_on_a_full_disk(run):
    """numpy's own message has no reason in it: the exit code was that of bad input."""
    os.symlink("/dev/full", "p.npy")
    answer = run("denoise", "noisy.png", "--marginals", "p.npy", code=6)
    assert answer.stderr == "minfer: error: cannot write p.npy: the disk is full\n"


def test_views_agree_where_both_see_a_point():
    seen = scene(40, 60, 8, noise=0.0)
    assert seen.left.shape == seen.right.shape == seen.disparity.shape == (40, 60)
    assert set(np.unique(seen.disparity)) <= set(range(8))
    rows, columns = np.mgrid[0:40, 0:60]
    there = columns - seen.disparity
    inside = there >= 0
    same = seen.left[inside] == seen.right[rows[inside], there[inside]]
    assert same.mean() > 0.85  # the others are hidden by what is nearer
    again = scene(40, 60, 8, noise=0.0)
    np.testing.assert_array_equal(seen.right, again.right)


def test_depth_is_found():
    seen = scene(48, 64, 12)
    found = depth(seen.left, seen.right, 12)
    assert found.answer.converged
    assert found.marginals.shape == (48, 64, 12)
    right = np.abs(found.labels - seen.disparity) <= 1
    assert right.mean() > 0.85
    open_, settled = found.entropy[~right].mean(), found.entropy[right].mean()
    assert open_ > settled  # where it is wrong it is less sure
    np.testing.assert_allclose(found.expected, found.marginals @ np.arange(12))
    assert "12 disparities" in repr(found)


def test_the_model_of_depth_is_as_its_docstring_has_it():
    rng = np.random.default_rng(0)
    left, right = rng.random((2, 3, 5))
    graph = stereo_model(left, right, 4, coupling=0.5, truncation=2.0, sigma=0.3)
    for r in range(3):
        for c in range(5):
            for d in range(4):
                cost = (left[r, c] - right[r, c - d]) ** 2 / 0.18 if c >= d else np.inf
                assert graph.log_table(r * 5 + c)[d] == pytest.approx(-min(cost, MOST))
    step = np.abs(np.arange(4)[:, None] - np.arange(4))
    np.testing.assert_allclose(graph.log_table(15), -0.5 * np.minimum(step, 2))
    by_tables = BeliefPropagation(tol=1e-10)(graph).probs
    np.testing.assert_allclose(
        depth(left, right, 4, BeliefPropagation(tol=1e-10), coupling=0.5, sigma=0.3).answer.probs,
        by_tables,
        atol=1e-12,
    )


def test_what_has_no_depth_is_refused():
    a = np.zeros((4, 6))
    all_refused(
        (lambda: depth(a, a[:3], 3), ModelError, "different sizes"),
        (lambda: depth(a, a, 7), ModelError, "width 6"),
        (lambda: depth(a, a, 3, sigma=0.0), ModelError, "sigma"),
        (lambda: depth(a, a, 1), SettingsError, "labels"),
        (lambda: scene(noise=-1.0), SettingsError, "noise"),
    )
