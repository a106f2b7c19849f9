// Package must ends a test when a step of its preparation fails.
package must
