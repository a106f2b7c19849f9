// Package seed chooses the seeds of random tests.
package seed
