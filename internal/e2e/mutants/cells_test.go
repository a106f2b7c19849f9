package mutants

// cellMutants break the cells of a key: counts, folds, and restorations.
func cellMutants() []mutant {
	const at, model = "leaparray/", "./leaparray"
	return []mutant{
		{
			name: "a fold forgets what it has of the same bucket", file: at + "fold.go",
			old: "\t\tlist[last].N += n\n", new: "\t\tlist[last].N = n\n",
			model: model, test: "TestCopiesThatFoldApartAgree",
		},
		{
			name: "a fold counts twice", file: at + "fold.go",
			old: "append(list, Cell{into, n})\n", new: "append(list, Cell{into, 2 * n})\n",
			model: model, test: "TestCopiesThatFoldApartAgree",
		},
		{
			name: "a fold takes what is exact", file: at + "fold.go",
			old: "due && into.End() <= f.exactFrom\n", new: "due && s.Start <= f.exactFrom\n",
			model: model, test: "TestFewEventsAreDecidedAsByALog",
		},
		{
			name: "a restoration compares cell by cell", file: at + "missing.go",
			old: "\t\t\tsame = same && d >= 0\n", new: "\t\t\tsame = same && d > -1<<60\n",
			model: model, test: "TestRestoringAfterALoss",
		},
		{
			name: "a restoration ignores what others restored", file: at + "missing.go",
			old: "\t\tcase whole.N <= 0:\n", new: "\t\tcase whole.N == 0:\n",
			model: model, test: "TestRestoringAfterALoss",
		},
		{
			name: "what has folded is looked for where it is due", file: at + "fold.go",
			old:   "into.End() >= s.End() && holds(into) {\n",
			new:   "into.End() >= s.End() && holds(into) && n == 0 {\n",
			model: "./syncer", test: "TestFlushesChangeNoAnswer",
		},
		{
			name: "a round that waits for a restoration is compared with what was known before",
			file: "syncer/restoration.go",
			old:  "\t\t\tr.Parts[i].Compared = false\n", new: "",
			model: "./syncer", test: "TestLossModel",
		},
	}
}
