// Package npm installs packages for tests of programs in Node.js.
package npm
