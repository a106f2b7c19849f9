// Package fields declares the fields of operations once. Its table has a row for each: its name in
// JSON and in files of tests, its option in RESP, its flag, and its bit between nodes. Sets of
// fields are the operations in JSON and the commands in RESP.
//
// Decoders, encoders, flags and error messages follow from the table. Tests check the documents of
// the API and the clients in other languages against it. docs/fields.md walks through adding a
// boolean.
//
// Listeners read the values of fields that are not booleans themselves.
package fields
