"""Say rows in both languages: the texts of labels.yaml with their values."""

import pytest

from servebench.words import comparisons

COMPARED = {
    "target": "Q4_K_M",
    "baseline": "Q8_0",
    "verdict": "none_detected",
    "difference": -1.5,
    "low": -5.0,
    "high": 2.0,
    "p_holm": 0.0123,
    "base_only": 10,
    "other_only": 7,
    "detectable": 6.78,
    "margin": 5.0,
    "equivalent": None,
}


@pytest.mark.parametrize(
    ("changed", "en", "ja"),
    [
        (
            {},
            "no difference detected (n discordant 17; a difference under 6.8 points would have been missed)",
            "差は検出されなかった（不一致 17 問。6.8 ポイント未満の差は見逃していたと考えられる）",
        ),
        (
            {"detectable": None},
            "no difference detected (n discordant 17;"
            " at so few, a difference of any size would often have been missed)",
            "差は検出されなかった（不一致 17 問。この問数では、どの大きさの差も見逃しやすい）",
        ),
        (
            {"verdict": "cannot_be_significant", "base_only": 5, "other_only": 0, "equivalent": True},
            "cannot be significant: n discordant 5; shown to be within ±5 points",
            "有意になり得ない（不一致 5 問）。±5 ポイント以内であることは示された",
        ),
        (
            {"verdict": "difference", "equivalent": False},
            "Q4_K_M is lower than Q8_0 by 1.5 points (95 % interval -5.0 to +2.0; p 0.012 after Holm)",
            "Q4_K_M は Q8_0 より 1.5 ポイント低い（95% 区間 -5.0〜+2.0、Holm 補正後 p 0.012）",
        ),
        (
            {"verdict": "difference", "difference": 2.0, "low": 1.0, "high": 3.0},
            "Q4_K_M is higher than Q8_0 by 2.0 points (95 % interval +1.0 to +3.0; p 0.012 after Holm)",
            "Q4_K_M は Q8_0 より 2.0 ポイント高い（95% 区間 +1.0〜+3.0、Holm 補正後 p 0.012）",
        ),
    ],
)
def test_a_comparison_is_said_with_its_sizes(changed: dict, en: str, ja: str) -> None:
    assert comparisons.said({**COMPARED, **changed}) == {"en": en, "ja": ja}
