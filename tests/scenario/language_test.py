#!/usr/bin/env python3
"""The language of the scenes: what can be read, and what is refused. Run by ctest."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import language   # noqa: E402
import run        # noqa: E402
import verbs      # noqa: E402


class Parse(unittest.TestCase):
    def words(self, text):
        return [[(w.text, w.block) for w in s.words] for s in language.parse(text)]

    def test_words_blocks_quotes_and_comments(self):
        self.assertEqual(self.words('# all\npod p1 start # why\nsubmit {"a": {"b": "}"}}\nnote "two words"\n'),
                         [[("pod", False), ("p1", False), ("start", False)],
                          [("submit", False), ('"a": {"b": "}"}', True)],
                          [("note", False), ("two words", False)]])

    def test_a_block_spans_lines_and_lines_are_counted_on(self):
        statements = language.parse("handler x {\n a = 1\n}\nready p1")
        self.assertEqual([s.line for s in statements], [1, 4])
        self.assertEqual(statements[0].words[2].text, "\n a = 1\n")

    def test_a_metric_with_labels_is_one_word(self):
        self.assertEqual(self.words('expect metric p1 x_total{reason="lease_lost"} >= 1')[0][3],
                         ('x_total{reason="lease_lost"}', False))

    def test_what_is_not_closed_is_refused_with_its_place(self):
        with self.assertRaisesRegex(language.SceneError, "x.scn:2: a brace is not closed"):
            language.parse("note a\nsubmit {", "x.scn")
        with self.assertRaisesRegex(language.SceneError, "a quote is not closed"):
            language.parse('note "a\n')

    def test_a_quote_inside_sql_does_not_hide_a_brace(self):
        self.assertEqual(self.words("sql {select '}' as a}")[0][1], ("select '}' as a", True))


class Values(unittest.TestCase):
    def test_variables_are_upper_case_so_that_a_ref_of_a_plan_stays(self):
        where = language.parse("note x")[0]
        word = language.Word('{"$ref": "/steps/a", "run": "$RUN"}')
        self.assertEqual(language.substitute(word, {"RUN": "r1"}, where).text, '{"$ref": "/steps/a", "run": "r1"}')
        with self.assertRaisesRegex(language.SceneError, "nothing has set"):
            language.substitute(word, {}, where)

    def test_comparisons(self):
        self.assertTrue(language.holds("10", ">=", "9"))
        self.assertFalse(language.holds(None, "==", "x"))
        self.assertTrue(language.holds(None, "!=", "x"))
        self.assertFalse(language.holds("x", ">", "1"))
        with self.assertRaises(language.SceneError):
            language.holds("1", "=", "1")

    def test_a_pattern_is_contained(self):
        self.assertTrue(language.matches({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2}}))
        self.assertFalse(language.matches({"a": 1}, {"a": 1, "b": 2}))

    def test_times_have_units(self):
        self.assertEqual(language.seconds("500ms"), 0.5)
        with self.assertRaises(language.SceneError):
            language.seconds("10")

    def test_a_metric_is_summed_over_its_series(self):
        text = 'a_total{reason="x"} 2\na_total{reason="y"} 3\nab_total 9\n'
        self.assertEqual(verbs.metric(text, "a_total"), 5.0)
        self.assertEqual(verbs.metric(text, 'a_total{reason="y"}'), 3.0)
        self.assertEqual(verbs.metric(text, "none_total"), 0.0)


class Scenes(unittest.TestCase):
    def test_every_scene_can_be_read_and_every_verb_has_a_grammar(self):
        scenes = run.find_scenes([])
        self.assertGreaterEqual(len(scenes), 11)
        for path in scenes:
            limit, statements = run.load(path)
            self.assertGreater(len(statements), 3, path)
            self.assertLessEqual(limit, 120)
        for name, function in verbs.VERBS.items():
            self.assertTrue((function.__doc__ or "").startswith(name), name)

    def test_every_scene_ends_quiet(self):
        for path in run.find_scenes([]):
            last = [s.words[0].text for s in run.load(path)[1]][-2:]
            self.assertIn("quiet", last, path)


if __name__ == "__main__":
    unittest.main()
