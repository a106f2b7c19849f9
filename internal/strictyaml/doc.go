// Package strictyaml reads YAML documents that people write and reports every mistake in them with
// its line and column.
//
// A [Reader] reads one document of one file. It carries on after a mistake, so that all mistakes
// are reported at once, or the first of a great many: unknown keys with the key that was probably
// meant, keys that are given twice, values of the wrong shape. Aliases that stand for a great many
// values are refused, so that a short text is not much work for whoever reads it. A Reader only
// walks the nodes; what they mean is up to the caller. It is for one goroutine.
package strictyaml
