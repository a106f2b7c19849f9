// Package strictyaml reads YAML documents that people write and reports every mistake in them with
// its line and column.
//
// A [Reader] reads one document of one file. It carries on after a mistake, so that all mistakes
// are reported at once: unknown keys with the key that was probably meant, keys that are given
// twice, values of the wrong shape. It only walks the nodes; what they mean is up to the caller. A
// Reader is for one goroutine.
package strictyaml
