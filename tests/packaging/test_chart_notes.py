"""What Helm prints after an installation: the next commands, as they work with the values."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from support.repository.rendered_chart import CHART, helm, in_every_case

from headrace_dev.versions import KUBERNETES


@pytest.fixture(scope="module")
def printing_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the chart with the notes as a manifest: Helm prints them only when it installs into a cluster."""
    copy = shutil.copytree(CHART, tmp_path_factory.mktemp("charts") / "headrace")
    (copy / "templates" / "NOTES.txt").rename(copy / "files" / "notes")
    template = 'kind: Notes\ntext: {{ tpl (.Files.Get "files/notes") . | toJson }}\n'
    (copy / "templates" / "notes.yaml").write_text(template)
    return copy


def notes(chart: Path, values: Path) -> str:
    """The notes of an installation."""
    command = [helm(), "template", "hr", str(chart), "--namespace", "data", "--values", str(values)]
    command += ["--kube-version", f"{KUBERNETES}.0"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    [found] = [each["text"] for each in yaml.safe_load_all(answer.stdout) if each and each["kind"] == "Notes"]
    return str(found)


@in_every_case
def test_the_next_command_is_named(values: Path, printing_chart: Path) -> None:
    """Every installation says how to wait for it and how to reach the API."""
    text = notes(printing_chart, values)
    assert "kubectl -n data rollout status " in text
    assert "/connectors?expand=status" in text


@pytest.mark.parametrize(
    ("case", "named", "absent"),
    [
        ("minimal", ["rollout status deployment/hr-headrace", "open to everybody", "are lost"], ["-client=true"]),
        ("https", ["statefulset/lake", "curl -k -u USER https://127.0.0.1:8083"], ["open to everybody", "are lost"]),
        ("admin", ['-H "Authorization: Bearer $TOKEN" --cert client.pem https://'], ["open to everybody"]),
        ("autoscaled", ["label pod POD hr-headrace-client=true", "curl -u USER http://"], ["open to everybody"]),
        ("connectors", ["/connectors-directory"], []),
    ],
)
def test_commands_fit_the_values(case: str, named: list[str], absent: list[str], printing_chart: Path) -> None:
    """Scheme, credentials and kind are those of the release; warnings are for what is not set."""
    text = notes(printing_chart, CHART / "ci" / f"{case}-values.yaml")
    assert [each for each in named if each not in text] == []
    assert [each for each in absent if each in text] == []
