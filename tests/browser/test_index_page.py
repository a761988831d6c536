"""The page of a published index, opened from its folder in a real browser: it says what `check` says."""

from __future__ import annotations

import hashlib
import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from selenium.webdriver import Keys
from selenium.webdriver.support.ui import WebDriverWait

import cuwheel
from cuwheel.delivery import page, page_verdicts
from cuwheel.delivery.simple_api import Hashes, Project, PublishedFile
from cuwheel.device_code import wheel_facts
from cuwheel.device_code.survey import survey
from cuwheel.machine.fleet import Machine, from_gpu
from cuwheel.verdicts.judge import Judge
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Capability
from cuwheel_core.support.finding import Finding
from tests.fixtures.small_wheel import Wheel
from tests.unit.delivery.published import catalogue_of

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

BIN = Path(__file__).parents[1] / "fixtures" / "bin"
EVIL = "<img src=x onerror=window.broken=1></script><script>window.broken=1</script>"
DRIVERS = ("", "440.33.01", "470.82.01", "525.60.13", "535.183.01", "550.54.14", "570.86.10", "580.65.06", "616.01")
WHEELS = {
    "plain-130.so": ("plain", "1.0", "cp311-cp311-manylinux_2_28_x86_64"),
    "plain-124.so": ("plain", "0.9", "cp312-cp312-manylinux_2_28_x86_64"),
    "ptx-130.so": ("ptx", "1.0", "py3-none-manylinux_2_28_x86_64"),
    "rdc-124.so": ("rdc", "1.0", "cp39-abi3-linux_x86_64"),
    "family-134.so": ("family", "1.0", "py3-none-linux_x86_64"),
    "size-130.so": ("size", "1.0", "py3-none-linux_x86_64"),
    "aarch64-130.so": ("arm", "1.0", "py3-none-manylinux_2_28_aarch64"),
    "windows-130.dll": ("windows", "1.0", "cp311-cp311-win_amd64"),
}
SMI = (
    (
        """
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
""",
        "NVIDIA H100 80GB HBM3",
        "550.54.15",
    ),
    (
        """
| NVIDIA-SMI 576.02                 Driver Version: 576.02         CUDA Version: 12.9     |
|   0  NVIDIA GeForce RTX 4090      WDDM  |   00000000:01:00.0  On |                  Off |
""",
        "NVIDIA GeForce RTX 4090",
        "576.02",
    ),
    (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-0000)\nGPU 1: NVIDIA L4 (UUID: GPU-1)",
        "NVIDIA A100-SXM4-40GB",
        "576.02",
    ),
    ("NVIDIA L40S, 570.86.10, 46068 MiB", "NVIDIA L40S", "570.86.10"),
)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dist")
    made = []
    for library, (name, version, tag) in WHEELS.items():
        files: dict[str, str | bytes] = {f"{name}/__init__.py": "", f"{name}/{library}": (BIN / library).read_bytes()}
        made.append(Wheel(name=name, version=version, tag=tag, files=files).write(folder))
    return made


@pytest.fixture(scope="module")
def beside(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that has pure Python too, and a package whose extras bring CUDA."""
    folder = tmp_path_factory.mktemp("beside")
    code: dict[str, str | bytes] = {"mg/__init__.py": "", "mg/lib.so": (BIN / "plain-124.so").read_bytes()}
    extras = [f"Requires-Dist: jax[cuda{each}]; extra == 'cuda{each}'" for each in (12, 13)]
    made = [
        Wheel(name="pure", files={"pure.py": ""}).write(folder),
        Wheel(name="mg", tag="py3-none-linux_x86_64", files=code, headers=extras).write(folder),
        Wheel(name="puremg", files={"puremg.py": ""}, headers=extras).write(folder),
    ]
    assert cuwheel.publish([*wheels, *made], to=folder / "index").succeeded
    return folder / "index"


@pytest.fixture(scope="module")
def index(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "index"
    answer = cuwheel.publish(wheels, to=folder)
    assert answer.succeeded, answer.findings
    return folder


def opened(browser: Chrome, index: Path, state: str = "") -> Chrome:
    browser.get("about:blank")
    browser.get(f"{(index / 'index.html').as_uri()}#{state}")
    return browser


_NO_CACHE = {"pip": "--no-cache-dir", "uv": "--no-cache"}


def shown(browser: Chrome, css: str) -> WebElement:
    return WebDriverWait(browser, 20).until(lambda page: page.find_element("css selector", css))


_LOOK_UP = """
const [file, place, capabilities, drivers, done] = arguments;
load("wheel", file).then((wheel) => done(capabilities.map((capability) => drivers.map((driver) => {
  const tegra = !data.machines.capabilities["linux-x86_64"].includes(capability);
  const told = verdict(wheel, { capability, driver, place, tegra, python: "3.11", torch: "", name: "" }, {});
  return [told.outcome, told.error, told.conditions, told.reasons.map((each) => each.message)];
}))));"""


@pytest.mark.parametrize("place", page_verdicts.PLACES, ids=lambda place: place.key)
def test_every_wheel_gpu_and_driver_is_told_as_check_tells_it(
    browser: Chrome, index: Path, wheels: list[Path], place: page_verdicts.Place
) -> None:
    opened(browser, index)
    browser.set_script_timeout(120)
    capabilities = [str(each) for each in page_verdicts.capabilities(place)]
    outcomes = set()
    for path in wheels:
        judge = Judge(survey(path, detail="containers"))
        told = browser.execute_async_script(_LOOK_UP, path.name, place.key, capabilities, DRIVERS)
        for capability, row in zip(capabilities, told, strict=True):
            for driver, (outcome, error, conditions, messages) in zip(DRIVERS, row, strict=True):
                verdict = judge.on(on(place, capability, driver))
                where = f"{path.name} on {capability} with driver {driver}"
                outcomes.add(outcome)
                assert outcome == verdict.outcome, where
                if any(each.rule == "wheel-tag-mismatch" for each in verdict.findings):
                    problem = messages[0].removeprefix("it cannot be installed: ")
                    assert any(problem in each.message for each in verdict.findings), where
                    continue
                found = verdict.predicted_error
                assert error == (f"{found.code} ({found.name})" if found else None), where
                assert tuple(conditions) == verdict.conditions, where
                assert set(messages) <= {each.message for each in verdict.findings}, where
    assert len(outcomes) >= (4 if place.key == "linux-x86_64" else 2)


def on(place: page_verdicts.Place, capability: str, driver: str) -> Machine:
    tegra = gpus.is_tegra(Capability.parse(capability))
    return Machine(
        name="m",
        capability=Capability.parse(capability),
        driver=None if tegra else driver or None,
        os=place.os,
        cpu=place.cpu,
        tegra=tegra,
        python="3.11",
    )


@pytest.mark.parametrize(
    ("state", "outcome", "file"),
    [
        ("package=plain&gpu=h100&driver=580.65.06&python=3.11", "native", "plain-1.0-cp311"),
        ("package=plain&gpu=h100&driver=CUDA 12.4", "native", "plain-0.9-cp312"),
        ("package=plain&gpu=h100&driver=580.65.06&python=3.12", "native", "plain-0.9-cp312"),
        ("package=ptx&gpu=rtx 5090&driver=580.65.06", "jit", "ptx-1.0"),
        ("package=plain&gpu=gtx 780&driver=470.82.01", "fails", ""),
        ("package=arm&gpu=jetson agx thor", None, "arm-1.0"),
        ("package=windows&gpu=h100&place=windows-x86_64", "native", "windows-1.0"),
        ("package=windows&gpu=h100", "fails", "windows-1.0"),
    ],
)
def test_the_wheel_that_runs_is_shown(browser: Chrome, index: Path, state: str, outcome: str | None, file: str) -> None:
    answer = shown(opened(browser, index, state), ".answer")
    assert outcome in (None, answer.get_attribute("data-outcome"))
    assert (answer.get_attribute("data-file") or "").startswith(file)


@pytest.mark.parametrize(
    ("torch", "outcome", "why"), [("2.11", "native", ""), ("2.7", "fails", "it requires torch>=2.9, not 2.7")]
)
def test_a_release_of_torch_can_be_chosen(browser: Chrome, tmp_path: Path, torch: str, outcome: str, why: str) -> None:
    files: dict[str, str | bytes] = {"ext/__init__.py": "", "ext/lib.so": (BIN / "plain-130.so").read_bytes()}
    wheel = Wheel(name="ext", tag="py3-none-linux_x86_64", files=files, headers=("Requires-Dist: torch>=2.9",))
    assert cuwheel.publish(wheel.write(tmp_path), to=tmp_path / "index").succeeded
    opened(browser, tmp_path / "index", f"package=ext&gpu=h100&driver=580.65.06&torch=%3D{torch}")
    answer = shown(browser, f'.answer[data-outcome="{outcome}"]')
    assert why in answer.text


def test_commands_name_exactly_this_file(browser: Chrome, index: Path) -> None:
    shown(opened(browser, index, "package=plain&gpu=h100&driver=580.65.06"), ".command")
    pip, uv, project, *_ = (each.text for each in browser.find_elements("css selector", ".command pre"))
    file = next((index / "files").glob("plain-1.0*.whl"))
    address = f"{file.as_uri()}#sha256={hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert pip == f'pip install "plain @ {address}"'
    assert uv == f'uv pip install "plain @ {address}"'
    assert "explicit = true" in project
    assert "extra-index-url" not in browser.find_element("css selector", ".install").text
    browser.find_element("id", "hashes").click()
    assert "sha256" not in browser.find_element("css selector", ".command pre").text
    browser.find_element("css selector", ".copy").click()
    WebDriverWait(browser, 5).until(lambda page: page.find_element("css selector", ".copy").text == "copied")


def test_the_commands_install_the_wheel_and_refuse_another(browser: Chrome, index: Path, tmp_path: Path) -> None:
    shown(opened(browser, index, "package=size&gpu=h100&driver=580.65.06"), ".command")
    pip, uv, *_ = (shlex.split(each.text) for each in browser.find_elements("css selector", ".command pre"))
    assert (pip[:2], uv[:3]) == (["pip", "install"], ["uv", "pip", "install"])
    tools = (("pip", [sys.executable, "-m", *pip]), ("uv", [sys.executable, "-m", *uv]))
    for name, command in tools:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed here")
        rest = ["--quiet", "--no-deps", _NO_CACHE[name], "--target"]
        subprocess.run([*command, *rest, str(tmp_path / name)], check=True, capture_output=True, timeout=300)
        assert (tmp_path / name / "size" / "__init__.py").exists()
        other = command[-1][:-8] + "01234567"
        again = [*command[:-1], other, *rest, str(tmp_path / f"{name}-refused")]
        refused = subprocess.run(again, check=False, capture_output=True, timeout=300)
        assert refused.returncode != 0
        assert b"hash" in refused.stderr.lower()


def test_what_nvidia_smi_prints_is_read(browser: Chrome, index: Path) -> None:
    opened(browser, index, "package=plain")
    shown(browser, ".paste summary").click()
    for text, gpu, driver in SMI:
        browser.execute_script("byId('smi').value = arguments[0]; byId('smi').dispatchEvent(new Event('input'))", text)
        assert browser.find_element("id", "gpu").get_attribute("value") == gpu
        assert browser.find_element("id", "driver").get_attribute("value") == driver
    shown(browser, ".answer")


def test_names_of_gpus_mean_what_they_mean_to_cuwheel(browser: Chrome, index: Path) -> None:
    opened(browser, index)
    names = [gpu.name for gpu in gpus.all_gpus()]
    names += [f"NVIDIA {name}" for name in names] + [f"{name} Laptop GPU" for name in names[::7]]
    names += ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "RTXA6000", "rtx 4090", "4090", "Titan", "rtx 6000"]
    names += [
        "Tesla T4",
        "NVIDIA GH200 480GB",
        "h100 mig 1g.10gb",
        "RTX PRO 4090",
        "nothing",
        "9.0",
        "sm_86",
        "rtx 6000 ada",
    ]
    told = browser.execute_script("return arguments[0].map((name) => findGpu(name).capability || null)", names)
    expected = []
    for name in names:
        try:
            expected.append(from_gpu(name).capability)
        except UnknownNameError:
            expected.append(None)
    assert [pair for pair in zip(names, told, expected, strict=True) if pair[1] != pair[2]] == []


def test_the_matrix_has_a_word_in_every_cell_and_can_be_filtered(browser: Chrome, index: Path) -> None:
    opened(browser, index, "package=plain&view=matrix&driver=580.65.06")
    shown(browser, ".wheels td[data-outcome]")
    cells = browser.find_elements("css selector", ".wheels td[data-outcome]")
    assert all(each.text == each.get_attribute("data-outcome") for each in cells)
    assert {each.text for each in browser.find_elements("css selector", ".wheels tbody th")} == {
        each.name for each in (index / "files").glob("plain-*.whl")
    }
    browser.find_element("id", "filter").send_keys("hopper cp312")
    heads = [each.text.split("\n")[0] for each in browser.find_elements("css selector", ".wheels thead th")]
    assert heads == ["9.0"]
    assert len(browser.find_elements("css selector", ".wheels tbody tr")) == 1


def test_packages_can_be_chosen_where_none_is(browser: Chrome, index: Path) -> None:
    browser.get((index / "index.html").as_uri())
    found = WebDriverWait(browser, 10).until(lambda _: browser.find_elements("css selector", "#find .choices button"))
    assert {each.text for each in found} == {name for name, _, _ in WHEELS.values()}
    next(each for each in found if each.text == "ptx").click()
    assert browser.find_element("id", "package").get_attribute("value") == "ptx"
    assert browser.switch_to.active_element.get_attribute("id") == "gpu"


def test_a_gpu_alone_shows_all_packages_that_run_on_it(browser: Chrome, beside: Path) -> None:
    opened(browser, beside, "gpu=rtx 5090&driver=580.65.06&place=linux-x86_64")
    shown(browser, "#find tr[data-package]")
    rows = browser.find_elements("css selector", "#find tr[data-package]")
    found = {each.get_attribute("data-package"): each for each in rows}
    outcomes = {name: each.get_attribute("data-outcome") for name, each in found.items()}
    assert set(outcomes) == {name for name, _, _ in WHEELS.values()} | {"pure", "mg", "puremg"}
    expected = {"ptx": "jit", "mg": "jit", "pure": "everywhere", "arm": "fails", "windows": "fails"}
    assert expected.items() <= outcomes.items()
    assert "1.0" in found["ptx"].text
    assert not found["arm"].is_displayed()
    fine = [name for name, outcome in outcomes.items() if outcome not in ("fails", "partial", "unknown")]
    assert [name for name, each in found.items() if each.is_displayed()] == fine
    assert f"{len(fine)} of {len(found)} packages run on GeForce RTX 5090" in browser.find_element("id", "find").text
    found["ptx"].find_element("css selector", "button").click()
    assert shown(browser, ".answer").get_attribute("data-file") == "ptx-1.0-py3-none-manylinux_2_28_x86_64.whl"
    browser.find_element("css selector", ".more.all").click()
    shown(browser, "#find tr[data-package]")
    browser.find_element("id", "package").send_keys("pur")
    WebDriverWait(browser, 10).until(
        lambda page: len(page.find_elements("css selector", "#find tr[data-package]")) == 2
    )


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        ("package=mg&gpu=h100&driver=580.65.06", "mg[cuda12] @"),  # compiled with CUDA 12
        ("package=puremg&gpu=h100&driver=580.65.06", "puremg[cuda13] @"),  # what the driver runs
        ("package=puremg&gpu=h100&driver=550.54.14", "puremg[cuda12] @"),
        ("package=puremg&gpu=h100&driver=580.65.06&torch=12.8", "puremg[cuda12] @"),
        ("package=puremg&gpu=h100", "puremg @"),  # nothing tells which
        ("package=puremg&gpu=jetson agx orin", "puremg @"),  # CUDA comes with its system
        ("package=plain&gpu=h100", "plain @"),
    ],
)
def test_the_install_line_has_the_extra_that_brings_cuda(browser: Chrome, beside: Path, state: str, asked: str) -> None:
    shown(opened(browser, beside, state), ".command")
    pip, uv, *_ = (each.text for each in browser.find_elements("css selector", ".command pre"))
    assert f'"{asked}' in pip
    assert f'"{asked}' in uv


def test_a_jetson_does_not_come_with_x86(browser: Chrome, beside: Path) -> None:
    opened(browser, beside, "place=linux-x86_64")
    shown(browser, ".choices")
    offered = "return [...byId('gpus').options].map((each) => each.value)"
    assert not any("Jetson" in each for each in browser.execute_script(offered))
    gpu, place = browser.find_element("id", "gpu"), browser.find_element("id", "place")
    gpu.send_keys("jetson agx orin")
    assert place.get_attribute("value") == "linux-aarch64"
    systems = "return [...byId('place').options].filter((each) => !each.hidden).map((each) => each.value)"
    assert browser.execute_script(systems) == ["linux-aarch64"]
    gpu.clear()
    gpu.send_keys("h100")
    assert place.get_attribute("value") == "linux-x86_64"  # as it was chosen
    assert len(browser.execute_script(systems)) == len(page_verdicts.PLACES)
    opened(browser, beside, "package=plain&view=matrix&place=linux-x86_64")
    shown(browser, ".wheels td[data-outcome]")
    heads = {each.text.split("\n")[0] for each in browser.find_elements("css selector", ".wheels thead th")}
    assert heads == set(map(str, page_verdicts.capabilities(page_verdicts.PLACES[0])))


def test_views_are_reached_with_the_keyboard(browser: Chrome, index: Path) -> None:
    opened(browser, index, "package=plain")
    browser.find_element("id", "tab-find").send_keys(Keys.ARROW_RIGHT)
    assert browser.switch_to.active_element.get_attribute("id") == "tab-matrix"
    assert browser.find_element("id", "matrix").is_displayed()
    assert not browser.find_element("id", "find").is_displayed()


def test_a_wheel_has_a_page_of_its_own(browser: Chrome, index: Path) -> None:
    shown(opened(browser, index, "package=plain&gpu=h100"), ".answer .file a").click()
    text = shown(browser, "main").text
    assert all(word in text for word in ("plain 1.0", "sm_90", "Requirements", "Build report", "sha256"))
    link = browser.find_element("css selector", ".file a").get_attribute("href")
    assert link == next((index / "files").glob("plain-1.0*.whl")).as_uri()


@pytest.mark.parametrize("state", ["package=plain&gpu=h100", "package=plain&view=matrix", "gpu=h100"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_itself_never_scrolls_sideways(browser: Chrome, index: Path, state: str, width: int) -> None:
    browser.set_window_size(width, 900)
    shown(opened(browser, index, state), ".answer, .wheels, .found")
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(overflow) == 0
    inside = (
        "return [...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth + 1)"
    )
    assert browser.execute_script(f"{inside}.length") == 0
    browser.set_window_size(1280, 900)


def test_it_is_dark_where_people_like_it_dark(browser: Chrome, index: Path) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    bright = opened(browser, index).execute_script(colour)
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert browser.execute_script(colour) != bright
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_without_scripts_it_still_lists_the_files(browser: Chrome, index: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened(browser, index)
        assert not browser.find_element("id", "machine").is_displayed()
        link = browser.find_element("link text", "plain")
        assert link.is_displayed()
        browser.get(link.get_attribute("href") or "")
        listed = [each.text for each in browser.find_elements("css selector", "a")]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert {each for each in listed if each.endswith(".whl")} == {
        each.name for each in (index / "files").glob("plain*.whl")
    }


@pytest.fixture(scope="module")
def with_catalogue(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that shows a catalogue of the same wheels."""
    folder = tmp_path_factory.mktemp("catalogue")
    catalogue_of(folder / "held", wheels)
    assert cuwheel.publish(wheels[:1], to=folder / "index", catalogue=str(folder / "held")).succeeded
    return folder / "index"


@pytest.mark.parametrize(("gpu", "expected"), [
    ("rtx 3090", {"plain": "1.0", "ptx": "1.0 jit"}),
    ("gtx 1080 ti", {"plain": "0.9", "ptx": "–"}),
])  # fmt: skip
def test_a_catalogue_is_shown_for_a_gpu(
    browser: Chrome, with_catalogue: Path, gpu: str, expected: dict[str, str]
) -> None:
    opened(browser, with_catalogue).find_element("link text", "Other packages").click()
    browser.find_element("id", "gpu").send_keys(gpu)
    found = {}
    for row in browser.find_elements("css selector", "[data-package]"):
        (cell,) = [each for each in row.find_elements("css selector", "td[data-capability]") if each.is_displayed()]
        found[row.get_attribute("data-package")] = cell.text
    assert expected.items() <= found.items(), found
    browser.find_element("id", "only").send_keys("plai")
    rows = browser.find_elements("css selector", "[data-package]")
    assert [each.get_attribute("data-package") for each in rows if each.is_displayed()] == ["plain"]


def test_what_a_wheel_says_of_itself_is_text(browser: Chrome, tmp_path: Path) -> None:
    """Its metadata, the paths in it, and what an index says of it."""
    file = "evil-1.0-py3-none-any.whl"
    library = wheel_facts.LibraryFacts(path=EVIL, machine=EVIL, size=1, soname=EVIL, needed=(EVIL,))
    finding = Finding(rule="r", severity="error", message=EVIL)
    facts = wheel_facts.WheelFacts(
        schema=wheel_facts.SCHEMA,
        file=file,
        sha256="0" * 64,
        size=1,
        name=EVIL,
        version=EVIL,
        tags=("py3-none-any",),
        requires_python=EVIL,
        requires_dist=(EVIL,),
        libraries=(library,),
        findings=(finding,),
    )
    published = PublishedFile(filename=file, url=f"../../files/{file}", hashes=Hashes(), yanked=EVIL)
    good = PublishedFile(filename=f"evil-0.9-{file[9:]}", url="../../files/x", hashes=Hashes())
    project = Project(name="evil", files=(published, good))
    older = replace(facts, file=good.filename)
    made = {**page.same_for_all(), **page.page_files([facts, older], [project], ["evil"])}
    for path, data in made.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    for state in ("package=evil&gpu=h100", "package=evil&view=matrix"):
        shown(opened(browser, tmp_path, state), ".answer, .wheels")
        assert_untouched(browser)
    browser.get((tmp_path / page.paths_of_wheel(file)[1]).as_uri())
    assert EVIL in browser.find_element("css selector", "h1").text
    assert_untouched(browser)


def assert_untouched(browser: Chrome) -> None:
    assert browser.execute_script("return window.broken === undefined")
    assert browser.find_elements("css selector", "img") == []
    log = browser.get_log("browser")  # type: ignore[no-untyped-call]
    assert [each for each in log if each["level"] == "SEVERE"] == []
