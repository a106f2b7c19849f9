// Package msgpack encodes the numbers that a script receives and decodes its reply, both as
// MessagePack (msgpack.org). Redis decodes and encodes that in C: a separate argument for each
// number would cost Redis ten times as much.
//
// The encoding is written by hand because every request of pure-Redis mode passes through here, and
// a library takes ten times as long to encode and twice as long to decode: see
// BenchmarkMessagePack. It covers numbers, texts and arrays of them.
package msgpack
