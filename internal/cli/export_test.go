package cli

// JoinPoints and Micros are internals with tests of their own.
var (
	JoinPoints = joinPoints
	Micros     = micros
	FormatSize = formatSize
)
