// Package embedded is a store inside the process, which tests look into. It implements syncer.Store
// in full, and its data ends with the process. A [Store] is safe for concurrent use.
package embedded
