// Package msgpack encodes what a script receives as MessagePack (msgpack.org). Redis decodes that
// in C: a separate argument for each number would cost Redis ten times as much.
//
// The encoding is written by hand because every request of pure-Redis mode passes through here, and
// a library takes ten times as long: see BenchmarkMessagePack. It covers numbers, texts and arrays
// of them.
package msgpack
