// Package check tests the files in deploy/ that can't be run everywhere: Kubernetes' are decoded
// strictly into the types of its API, and what belongs together is compared, as is what the Helm
// chart renders to; Compose's are loaded by its own library. It is a module of its own, so that
// twotier needs none of that.
package check
