"""What is done with cells, each as operations of one caller."""
