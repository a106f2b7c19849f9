package mutants

// cellMutants break package leaparray: what is counted, folds, or is restored.
func cellMutants() []mutant {
	const at, model = "leaparray/", "./leaparray"
	return []mutant{
		{
			name: "a fold forgets what it has of the same bucket", file: at + "fold.go",
			old: "\t\tf.moved[last].N += n\n", new: "\t\tf.moved[last].N = n\n",
			model: model, test: "TestCopiesThatFoldApartAgree",
		},
		{
			name: "a fold counts twice", file: at + "fold.go",
			old: "append(f.moved, Cell{into, n})\n", new: "append(f.moved, Cell{into, 2 * n})\n",
			model: model, test: "TestCopiesThatFoldApartAgree",
		},
		{
			name: "a fold takes what is exact", file: at + "fold.go",
			old: "\tcase into.End() > f.exactFrom:\n", new: "\tcase s.Start > f.exactFrom:\n",
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
	}
}
