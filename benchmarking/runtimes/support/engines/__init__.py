"""What runtimes on inference engines share: engines that generate tokens by themselves, from files of their own."""
