// Package strictyaml reads YAML documents that people write and reports every mistake in them with
// its line and column.
//
// A [Reader] reads one document of one file. It carries on after a mistake, so that all mistakes
// are reported at once, up to a bound: unknown keys with a list of the valid ones, duplicate keys,
// values of the wrong shape. A [Mapping] is a table of keys and of the variables that receive their
// values, and returns the nodes of the values for errors about several of them. Aliases that stand
// for a great many values are refused, so that a short text can't cause much work. What the values
// mean is up to the caller. A Reader is for one goroutine.
package strictyaml
