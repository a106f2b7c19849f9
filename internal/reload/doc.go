// Package reload reloads files when they change: tokens, certificates, secrets.
//
// A [Loader] compares contents, twice a second. The files are small, and so neither an unchanged
// modification time nor a directory swapped behind a symbolic link, as Kubernetes does it, hides a
// change. The loader applies a change once it has read the same content twice in a row, so that a
// file being written is not loaded half-way; [Loader.Reload] applies it at once. A pipe is read
// once, at start. Unusable content is logged, once, and the previous content stays in use.
//
// Methods of a Loader are safe for concurrent use, except that Add must be called before Open.
package reload
