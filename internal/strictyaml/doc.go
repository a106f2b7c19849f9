// Package strictyaml reads YAML documents that people write and reports every mistake in them with
// its line and column.
//
// A [Reader] reads one document of one file. It carries on after a mistake, so that all mistakes
// are reported at once, up to a bound: unknown keys with a list of the valid ones, duplicate keys,
// values of the wrong shape. Aliases that stand for a great many values are refused, so that
// a short text can't cause much work. A Reader only walks the nodes; their meaning is up to the
// caller. It is for one goroutine.
package strictyaml
