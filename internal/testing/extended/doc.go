// Package extended executes operations with values on a counter without a node.
package extended
