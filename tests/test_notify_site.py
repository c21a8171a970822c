"""What a site and a user may say of messages and mail."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from test_job import request, shellcheck
from webhooks import (
    KEY,
)

from beam_slurm import checks, profiles
from beam_slurm.cli.submit import submit
from beam_slurm.doctor import login
from beam_slurm.doctor.subject import Subject
from beam_slurm.errors import BeamSlurmError

pytestmark = pytest.mark.usefixtures("no_site")


def refusal(*words: str) -> BeamSlurmError:
    with pytest.raises(BeamSlurmError) as caught:
        request("demo", *words)
    return caught.value


def test_a_url_in_the_site_file_is_refused_and_not_repeated() -> None:
    url = f"https://hooks.slack.com/services/{KEY}"
    error = refusal(f"site.notify.webhook={url}")
    assert "webhook is no name of a variable" in str(error)
    assert KEY not in str(error)
    # Nor anywhere else, where a name or its shape betrays it.
    assert "is a secret" in str(refusal(f"site.environment.WHERE={url}"))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("site.notify.webhok=X", "the key site.notify.webhok is unknown"),
        ("site.notify.form=teams", "site.notify.form is 'teams'"),
        ("site.notify.on=[begin]", "site.notify.on[0] is 'begin'"),
        ("site.notify.webhook=my-hook", "webhook is no name of a variable"),
        ("job.mail_type=[END, DONE]", "'DONE' is none of NONE, BEGIN, END"),
        ("job.mail_type=NONE,END", "NONE stands alone"),
        ("job.mail_user=me@example.org", "mail_type does not say when"),
    ],
)
def test_words_that_make_no_sense(word: str, said: str) -> None:
    assert said in str(refusal(word))


def test_mail_is_said_once() -> None:
    error = refusal("site.directives={mail-type: FAIL}", "job.mail_type=END")
    assert "site.directives.mail-type and job.mail_type" in str(error)
    script = str(request("demo", "site.directives={mail-type: FAIL}", "site.account=x"))
    assert script.count("mail-type") == 1
    short = str(request("demo", "job.mail_type=end, time_limit_80"))
    assert "#SBATCH --mail-type=END,TIME_LIMIT_80\n" in short
    assert shellcheck(short) == ""


def test_the_command_line_asks_for_mail() -> None:
    words = ["--profile", "demo", "--mail-type", "begin,FAIL", "--mail-user", "me@example.org"]
    done = CliRunner().invoke(submit, [*words, "--dry-run"])
    assert "#SBATCH --mail-type=BEGIN,FAIL\n#SBATCH --mail-user=me@example.org\n" in done.output
    local = CliRunner().invoke(submit, [*words, "--nodes", "1", "--local", "--dry-run"])
    assert "#SBATCH" not in local.output
    assert "it is Slurm that sends mail, and this run does without" in local.output


def test_a_webhook_that_is_not_there_is_found_before_the_queue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = request("demo", "site.notify.webhook=HOOK").profile.site
    monkeypatch.delenv("HOOK", raising=False)
    with pytest.raises(BeamSlurmError, match="HOOK") as caught:
        checks.secrets(site)
    assert caught.value.why == "its variable is not set"
    monkeypatch.setenv("HOOK", f"http://hooks.slack.com/{KEY}")
    with pytest.raises(BeamSlurmError) as caught:
        checks.secrets(site)
    assert "use https://" in str(caught.value)
    assert KEY not in str(caught.value)
    monkeypatch.setenv("HOOK", f"https://hooks.slack.com/{KEY}")
    checks.secrets(site)
    monkeypatch.delenv("HOOK")
    file = tmp_path / "secrets"
    file.write_text(f"HOOK=https://hooks.slack.com/{KEY}\n")
    file.chmod(0o600)
    words = profiles.parse_settings(("site.notify.webhook=HOOK", f"site.secrets_file={file}"))
    profile = profiles.resolve("demo", settings=words).profile
    checks.secrets(profile.site)
    (found,) = (
        it for it in login.check(Subject(profile, None, alone=True)) if it.name == "secrets"
    )
    assert (found.verdict, KEY in found.have) == ("pass", False)
