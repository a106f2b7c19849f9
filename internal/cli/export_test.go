package cli

// JoinPoints and Micros are tested directly.
var (
	JoinPoints = joinPoints
	Micros     = micros
	FormatSize = formatSize
)
