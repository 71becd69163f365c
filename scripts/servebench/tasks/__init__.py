"""The evaluations of Japanese answers: JCommonsenseQA, MGSM, proofreading."""
