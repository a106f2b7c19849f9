// Package check tests the files in deploy/ that can't be run everywhere. It decodes Kubernetes'
// files, and the output of the Helm chart, strictly into the types of its API, and compares related
// parts; it loads Compose's files with Compose's own library. It is a separate module, so that
// twotier does not depend on any of that.
package check
